"""Studies of trained runs: each in quick mode on tiny runs, and what they refuse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful.basics.errors import UserError
from heedful.data.readers.trees import ROOT, Tree
from heedful.evaluation.layer_predictions import LayerPredictions
from heedful.inference.removal import removed_heads
from heedful.studies import pruning
from heedful.studies.catalogue import study_named
from heedful.studies.logit_lens import layer_rows
from heedful.studies.probing import LABELS, evenly_spaced
from heedful.studies.pruning import Measured, _summary
from heedful.studies.report import run_study
from heedful.studies.study import StudyOptions
from heedful.studies.trained_runs import Recipe, texts_of, trained_runs, treebank
from heedful.tasks.spec import spec_of_run
from heedful.training import train
from text_help import LANGUAGE, MASKED, RECIPES, write_data

EARLIER = Path(__file__).parent / "data" / "runs-0.1"
TRANSLATOR = EARLIER / "translation" / "run"
LONGER = {
    **LANGUAGE,
    "context": 40,
    "model": {
        "kind": "gpt",
        "layers": 2,
        "hidden_size": 16,
        "heads": 2,
        "ffn_size": 16,
        "max_length": 40,
    },
}
TINY = {"tagging": RECIPES["tagging"], "masked": MASKED, "language": LONGER}

Made = Callable[[str], Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("studies")
    write_data(folder)

    def one(name: str) -> Path:
        assert train(TINY[name], folder / name, data=folder)
        return folder / name

    return one


def write_treebank(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    rows = ["the DET 2 det", "red ADJ 3 amod", "dog NOUN 4 nsubj", "sees VERB 0 root"]
    for part in ("train", "dev", "test"):
        lines = []
        for number, row in enumerate(rows, start=1):
            form, tag, head, relation = row.split()
            lines.append(f"{number}\t{form}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_\n")
        (folder / f"tiny-ud-{part}.conllu").write_text(("".join(lines) + "\n") * 5)


def report(name: str, out: Path, *runs: Path, data: Path | None = None) -> dict[str, Any]:
    said: list[str] = []
    options = StudyOptions(out, data, runs, quick=True, threads=1, device="cpu", echo=said.append)
    found = run_study(study_named(name), options)
    assert said
    assert json.loads((out / f"{name}.json").read_text()) == found
    for one in found["pictures"]:
        assert (out / one["file"]).stat().st_size > 1000
    return found


def table(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    own = next(one for one in found["tables"] if one["name"] == name)
    return [dict(zip(own["columns"], row, strict=True)) for row in own["rows"]]


def test_syntax_heads(tmp_path: Path, made: Made) -> None:
    write_treebank(tmp_path / "trees")
    runs = made("tagging"), made("language")
    found = report("syntax-heads", tmp_path / "out", *runs, data=tmp_path / "trees")
    rows = {row["relation"]: row for row in table(found, "run-1-to-the-head")}
    assert rows["det"]["arcs"] == 5
    assert (rows["det"]["offset"], rows["det"]["its accuracy"]) == ("+1", 1.0)
    assert rows["all but punct"]["arcs"] == 15
    # All heads of this treebank are later words: a language model finds dependents only.
    assert table(found, "run-2-to-the-head") == []
    assert {row["relation"] for row in table(found, "run-2-to-the-dependent")} == {
        "all but punct",
        "det",
        "amod",
        "nsubj",
    }


@pytest.mark.parametrize("name", ["tagging", "language"])
def test_differing_heads(tmp_path: Path, made: Made, name: str) -> None:
    found = report("differing-heads", tmp_path / "out", made(name))
    rows = table(found, "run-1")
    assert [row["head"] for row in rows] == ["1.1", "1.2", "2.1", "2.2"]
    assert ("next" in rows[0]) == (name == "tagging")
    assert all(0 <= row["largest"] <= 1 and 0 <= row["relative entropy"] <= 1 for row in rows)
    distances = table(found, "run-1-distances")
    assert all(row["its distance"] <= row["mean distance of others"] + 1e-9 for row in distances)
    assert [one["name"] for one in found["pictures"]] == [
        "run-1",
        "run-1-entropy",
        "run-1-map",
    ]


def test_multi_task_runs_are_studied(tmp_path: Path) -> None:
    run = EARLIER / "several" / "run"
    rows = table(report("differing-heads", tmp_path / "heads", run), "run-1")
    found = report("pruning", tmp_path / "pruned", run)
    assert len(table(found, "run-1-heads")) == len(rows)
    chosen = json.loads((run / "result.json").read_text())["validation"]
    first = table(found, "run-1")[0]
    assert first["mean, least important first"] == pytest.approx(chosen["mean"], abs=1e-4)


def test_logit_lens(tmp_path: Path, made: Made) -> None:
    found = report("logit-lens", tmp_path / "out", made("language"))
    rows = table(found, "run-1")
    assert [row["layer"] for row in rows] == [0, 1, 2]
    last = rows[-1]
    assert (last["same prediction"], last["median rank"]) == (1.0, 1)
    assert last["KL to the final output"] == pytest.approx(0, abs=1e-6)
    assert rows[0]["KL to the final output"] > 0
    assert found["tables"][0]["title"].endswith("200 predictions")


def test_the_rows_of_the_lens_are_means() -> None:
    numbers = torch.tensor([[1.0, 3.0, 2.0], [1.0, 1.0, 1.0]])
    seen = LayerPredictions(numbers.long(), numbers / 4, numbers, numbers, numbers, numbers)
    assert layer_rows(seen)[0] == pytest.approx((0, 1 / 3, 2, 0.5, 2.0, 2.0))


@pytest.mark.parametrize("name", ["translation", "masked", "classification"])
def test_pruning(tmp_path: Path, name: str) -> None:
    run = EARLIER / name / "run"
    found = report("pruning", tmp_path / "out", run)
    curve, heads = table(found, "run-1"), table(found, "run-1-heads")
    assert [row["heads removed"] for row in curve] == [0, len(heads)]
    figure = next(column for column in curve[0] if column.endswith("least important first"))
    name = figure.partition(",")[0]
    # Without any head, the order does not matter.
    assert all(row[figure] == pytest.approx(row[f"{name}, random"]) for row in curve)
    chosen = json.loads((run / "result.json").read_text())["validation"]
    assert curve[0][figure] == pytest.approx(chosen[name], abs=1e-4)
    opened, spec = spec_of_run(run)
    predictor = spec.load(run, device="cpu")
    task = spec.build_task(
        opened, predictor.model, opened.recipe.training, predictor.device, "float32"
    )
    first = heads[0]
    with removed_heads(predictor.model, [(first["module"], first["head"] - 1)]):
        assert task.validate().figures[name] == pytest.approx(first[f"{name} without it"])


def test_figures_of_pruning_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = EARLIER / "classification" / "run"
    measured: list[float] = []
    whole = pruning._figure

    def interrupted(*given: Any) -> float:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(whole(*given))
        return measured[-1]

    with monkeypatch.context() as patched:
        patched.setattr(pruning, "_figure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            report("pruning", tmp_path / "out", run)
    resumed = report("pruning", tmp_path / "out", run)
    monkeypatch.setattr(pruning, "_figure", lambda *given: pytest.fail("it measures again"))
    assert report("pruning", tmp_path / "out", run) == resumed
    [file] = (tmp_path / "out").glob("figures-*.json")
    known = json.loads(file.read_text())
    assert list(known.values())[:2] == measured
    assert next(iter(known)) == ""


def test_heads_that_are_spared_are_those_before_the_first_loss() -> None:
    heads = {("a", number): float(number) for number in range(4)}
    measured = Measured(
        "bleu",
        False,
        40.0,
        heads,
        dict(zip(heads, (40.0, 39.0, 41.0, 30.0), strict=True)),
        [0, 1, 2, 3, 4],
        [40.0, 39.0, 38.5, 20.0, 39.0],
        [[40.0, 30.0, 20.0, 10.0, 39.0], [40.0, 20.0, 10.0, 10.0, 39.0]],
    )
    told = _summary("x", measured)
    assert "it is as good or better for 2 of them" in told
    assert "at most 5% worse with 2 of them removed, and worse than that with 3" in told
    never = measured._replace(by_importance=[40.0] * 5)
    assert "at most 5% worse even without all heads" in _summary("x", never)
    assert "with 2 removed it is 38.500, in random orders 15.000" in told
    assert "knock-out is 0.40" in told  # ranks 1 2 3 4 against 2 3 1 4


def test_probing(tmp_path: Path, made: Made) -> None:
    write_treebank(tmp_path / "trees")
    found = report("probing", tmp_path / "out", made("tagging"), data=tmp_path / "trees")
    rows = table(found, "run-1")
    assert [(row["labels"], row["layer"]) for row in rows] == [
        (kind, layer) for kind in LABELS for layer in range(3)
    ]
    # Each word of this treebank has one label.
    assert all(row["accuracy"] == row["most frequent label"] == 1.0 for row in rows)
    assert all(row["selectivity"] == row["accuracy"] - row["control task"] for row in rows)


def test_labels_of_words() -> None:
    tree = Tree(tuple("abc"), ("DET", "X", "X"), (1, ROOT, 1), ("nmod:poss", "root", "obj"))
    assert {kind: list(own(tree)) for kind, own in LABELS.items()} == {
        "part of speech": ["DET", "X", "X"],
        "relation": ["nmod", "root", "obj"],
        "depth": ["1", "0", "1"],
    }
    assert len(evenly_spaced([tree] * 10, 15)) == 5
    assert len(evenly_spaced([tree] * 10, 100)) == 10


def test_a_recipe_is_trained_once(tmp_path: Path) -> None:
    data = tmp_path / "tiny"
    write_data_of_language(data)
    options = StudyOptions(
        tmp_path / "out", data, quick=True, threads=1, device="cpu", echo=lambda line: None
    )
    recipes = [Recipe("tinyshakespeare-characters", "tiny")]
    (first,) = trained_runs(options, recipes)
    assert first.label == "tinyshakespeare-characters-1"
    stamp = (first.run.path / "result.json").stat().st_mtime_ns
    (again,) = trained_runs(options, recipes)
    assert (again.run.path / "result.json").stat().st_mtime_ns == stamp


def write_data_of_language(folder: Path) -> None:
    folder.mkdir()
    for part in ("train", "validation"):
        (folder / f"{part}.txt").write_text("the dog sees the cat\n" * 400)


def test_what_a_study_cannot_use_is_refused(tmp_path: Path, made: Made) -> None:
    write_treebank(tmp_path / "trees")
    trees = tmp_path / "trees"
    options = StudyOptions(tmp_path / "out", trees, echo=lambda line: None)
    with pytest.raises(UserError, match="none of the folders wikitext-2; give --run"):
        list(trained_runs(options, [Recipe("wikitext2-gpt-tiny", "wikitext-2")]))
    with pytest.raises(UserError, match=r"0 files \*-ud-train.conllu"):
        treebank(StudyOptions(tmp_path, tmp_path), "train")
    with pytest.raises(UserError, match="the logit lens needs the run of a language model"):
        report("logit-lens", tmp_path / "out", made("tagging"))
    said: list[str] = []
    both = StudyOptions(tmp_path / "out", None, (made("language"), TRANSLATOR), echo=said.append)
    with pytest.raises(UserError, match="the logit lens needs the run of a language model"):
        run_study(study_named("logit-lens"), both)
    assert not said, "all runs are checked before the first one is measured"
    with pytest.raises(UserError, match="needs the run of an encoder"):
        report("differing-heads", tmp_path / "out", TRANSLATOR)
    full = StudyOptions(tmp_path / "out", trees, (made("tagging"),), echo=lambda line: None)
    with pytest.raises(UserError, match="no relation has 100 arcs"):
        run_study(study_named("syntax-heads"), full)
    with pytest.raises(UserError, match="is a run for translation; give a run for single texts"):
        texts_of(next(trained_runs(StudyOptions(tmp_path, runs=(TRANSLATOR,)), ())))
    with pytest.raises(UserError, match="--seeds is for trainings"):
        next(trained_runs(StudyOptions(tmp_path, runs=(TRANSLATOR,), seeds=(1, 2)), ()))
    with pytest.raises(UserError, match="--data is for trainings in this study"):
        report("logit-lens", tmp_path / "out", made("language"), data=trees)
    with pytest.raises(UserError, match="needs --data or --run: a folder with wikitext-2, or"):
        report("logit-lens", tmp_path / "out")
    with pytest.raises(UserError, match="no such folder"):
        report("logit-lens", tmp_path / "out", data=tmp_path / "none")
    with pytest.raises(UserError, match="needs --data"):
        report("probing", tmp_path / "out", made("tagging"))
