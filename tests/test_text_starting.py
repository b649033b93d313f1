"""Runs for single texts that begin with the weights of another."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.runs.opening import open_run
from heedful.tasks.texts.loading import load_classifier
from heedful.tasks.texts.run import TextRun
from heedful.training.train import train
from text_help import ATTENTIVE, DOCUMENTS, LABELLED, LOOP, PAIRS, RECIPES, TAGGED, write_data

SHORT = {**LOOP, "max_steps": 2, "validate_every": 2}
PAIR_RECIPE: dict[str, Any] = {
    "data": {"train": "pairs-of-texts.tsv"},
    "tokeniser": {"vocabulary_size": 340},
    "model": {"layers": 1, "hidden_size": 16, "ffn_size": 16, "heads": 2},
    "training": {**SHORT, "choose_by": "loss"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("starting")
    write_data(folder)
    lines = (folder / "pairs.tsv").read_text().splitlines()[1:]
    pairs = "".join("\t".join(line.split("\t")[:2]) + "\n" for line in lines)
    (folder / "pairs-of-texts.tsv").write_text(pairs, encoding="utf-8")
    other = (folder / "labelled.tsv").read_text().replace("\tred", "\trot")
    (folder / "other.tsv").write_text(other, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def first(folder: Path) -> Callable[[str], Path]:
    """A short run of a recipe, to start from."""

    def made(name: str) -> Path:
        path = folder / "first" / name
        if not path.exists():
            recipe = PAIR_RECIPE if name == "translation" else RECIPES[name]
            assert train({**recipe, "training": {**recipe["training"], **SHORT}}, path, data=folder)
        return path

    return made


def begun(run: Path) -> dict[str, Tensor]:
    """The weights that a run began with."""
    return load_file(run / "start" / "model.safetensors")


def started(folder: Path, name: str, start: Path, **recipe: Any) -> Path:
    path = folder / "second" / name
    assert train({"training": SHORT, **recipe}, path, data=folder, start_from=start)
    return path


def heads(tensors: dict[str, Tensor]) -> set[str]:
    return {name.split(".")[1] for name in tensors if name.startswith("heads.")}


@pytest.mark.parametrize(
    ("task", "data"),
    [("classification", LABELLED), ("classification", PAIRS), ("tagging", TAGGED)],
    ids=["texts", "pairs", "tagging"],
)
def test_a_pre_trained_encoder_is_fine_tuned(
    folder: Path,
    first: Callable[[str], Path],
    task: str,
    data: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    start = first("masked")
    name = f"{task}-{len(data.get('text', []))}"
    run = started(folder, name, start, task=task, data=data, max_tokens=24)
    assert f"starting from the encoder of {start}; new heads: {task}" in capsys.readouterr().err
    expected, found = open_run(start).chosen().weights(), begun(run)
    assert heads(found) == set()
    for key, tensor in expected.items():
        assert key.startswith("heads.") or torch.equal(tensor, found[key]), key
    now, known = open_run(run), open_run(start)
    assert isinstance(now, TextRun)
    assert isinstance(known, TextRun)
    assert now.vocabulary().fingerprint() == known.vocabulary().fingerprint()
    assert now.recipe.as_tables()["model"] == known.recipe.as_tables()["model"]
    ended = open_run(run).chosen("last").weights()
    assert heads(ended) == {task}
    # Two steps of Adam, of a rate of 0.01 at most, lead no farther than this from the start.
    for key, tensor in found.items():
        assert float((ended[key] - tensor).abs().max()) < 0.021, key


def test_a_pre_trained_encoder_learns_several_things_with_its_own_heads(
    folder: Path, first: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = {
        "colour": {"task": "classification", "data": LABELLED},
        "hidden": {"task": "masked", "data": DOCUMENTS},
    }
    start = first("masked")
    several = started(folder, "several", start, task="several", tasks=tasks, max_tokens=24)
    said = capsys.readouterr().err
    assert "kept heads: hidden ('masked' there); new heads: colour" in said
    expected, found = open_run(start).chosen().weights(), begun(several)
    assert heads(found) == {"hidden", "hidden_next"}
    for key, tensor in expected.items():
        renamed = key.replace("heads.masked", "heads.hidden")
        assert torch.equal(found[renamed], tensor), key

    # And from there on, one head by its labels, the other by its task alone.
    again = started(folder, "again", several, task="classification", data=LABELLED, max_tokens=24)
    assert "kept heads: classification ('colour' there)" in capsys.readouterr().err
    learnt = open_run(several).chosen().weights()
    assert torch.equal(
        begun(again)["heads.classification.output.weight"], learnt["heads.colour.output.weight"]
    )


def test_a_head_goes_on_only_with_the_same_labels(
    folder: Path, first: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    start = first("attentive")
    same = started(folder, "same", start, task="classification", data=LABELLED, max_tokens=24)
    assert "kept heads: classification\n" in capsys.readouterr().err
    expected = open_run(start).chosen().weights()
    assert all(torch.equal(begun(same)[key], tensor) for key, tensor in expected.items())
    data = {"train": "other.tsv"}
    other = started(folder, "other", start, task="classification", data=data, max_tokens=24)
    assert "new heads: classification\n" in capsys.readouterr().err
    assert heads(begun(other)) == set()
    assert load_classifier(other, device="cpu").labels == ("blue", "green", "rot")


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_a_language_model_goes_on_with_new_text(
    folder: Path, first: Callable[[str], Path], name: str
) -> None:
    data = {"train": "documents-held.txt", "validation": "documents.txt"}
    run = started(folder, f"new-{name}", first(name), task="language-model", data=data, context=12)
    expected = open_run(first(name)).chosen().weights()
    assert all(torch.equal(begun(run)[key], tensor) for key, tensor in expected.items())
    facts = json.loads((run / "run.json").read_text())
    assert facts["started_from"]["run"] == str(first(name))


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_a_language_model_learns_to_classify_and_tag(
    folder: Path, first: Callable[[str], Path], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = open_run(first(name)).chosen().weights()
    length = {"max_tokens": 8, "model": {"language_model": {"dropout": 0.0}}}
    for task, data in (("classification", LABELLED), ("tagging", TAGGED)):
        run = started(folder, f"{name}-{task}", first(name), task=task, data=data, **length)
        said = capsys.readouterr().err
        assert f"starting from the language model of {first(name)}; new heads: {task}" in said
        found = begun(run)
        assert found.keys() == {f"encoder.writer.{key}" for key in expected}
        assert all(torch.equal(found[f"encoder.writer.{key}"], expected[key]) for key in expected)
        assert open_run(run).recipe.as_tables()["model"]["language_model"]["dropout"] == 0.0
    # What it decides on is the state after the last token, wherever padding stands.
    classifier = load_classifier(folder / "second" / f"{name}-classification", device="cpu")
    texts = ["the", "the red cat"]
    together, alone = classifier.classify(texts), [classifier.classify([t])[0] for t in texts]
    for one, other in zip(together, alone, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-6)


def test_dropout_may_differ_and_lengths_where_nothing_has_a_place(
    folder: Path, first: Callable[[str], Path]
) -> None:
    run = started(
        folder,
        "dropout",
        first("masked"),
        task="tagging",
        data=TAGGED,
        max_tokens=24,
        model={"dropout": 0.4, "attention_dropout": 0.0},
    )
    model = open_run(run).recipe.as_tables()["model"]
    assert (model["dropout"], model["attention_dropout"], model["layers"]) == (0.4, 0.0, 2)
    longer = {"max_length": 1000, "dropout": 0.0}
    given = {"task": "classification", "data": LABELLED, "model": longer}
    run = started(folder, "longer", first("attentive"), **given)
    assert open_run(run).recipe.as_tables()["model"]["max_length"] == 1000


CLASSIFIED: dict[str, Any] = {"task": "classification", "data": LABELLED, "max_tokens": 24}


@pytest.mark.parametrize(
    ("start", "recipe", "message"),
    [
        (
            "gpt",
            {"data": {"train": "pairs-of-texts.tsv"}},
            "is a run for language-model, .* a run for task = 'translation' cannot start",
        ),
        (
            "gpt",
            {"task": "masked", "data": DOCUMENTS, "max_tokens": 8},
            "masked tokens need model.kind = 'bert'",
        ),
        ("translation", CLASSIFIED, "is a run for translation, .* task = 'classification' cannot"),
        (
            "classification",
            {"data": {"train": "pairs-of-texts.tsv"}},
            "is a run for classification, .* a run for task = 'translation' cannot start",
        ),
        (
            "masked",
            {"task": "language-model", "data": DOCUMENTS},
            "is a run for masked, .* a run for task = 'language-model' cannot start",
        ),
        ("masked", {**CLASSIFIED, "model": ATTENTIVE}, "differs from that of .* in model.*: a run"),
        ("masked", {**CLASSIFIED, "model": {"layers": 1}}, r"in model.layers \(1, there 2\)"),
        ("masked", {**CLASSIFIED, "model": {"max_length": 32}}, r"in model.max_length \(32, th"),
        (
            "masked",
            {**CLASSIFIED, "tokeniser": {"lower_case": True}},
            r"\[tokeniser\] differs from that of .* in tokeniser.lower_case \(True, there False\)",
        ),
        (
            "masked",
            {**CLASSIFIED, "vectors": {"file": "vectors.txt"}},
            r"\[vectors\] and --start-from .* both give",
        ),
        ("missing", CLASSIFIED, "no run at"),
    ],
)
def test_what_does_not_fit_is_said_in_a_line(
    folder: Path, first: Callable[[str], Path], start: str, recipe: dict[str, Any], message: str
) -> None:
    where = folder / "missing" if start == "missing" else first(start)
    with pytest.raises(UserError, match=message) as error:
        train({"training": SHORT, **recipe}, folder / "wrong", data=folder, start_from=where)
    assert "\n" not in str(error.value)
    assert not (folder / "wrong" / "run.json").exists()
