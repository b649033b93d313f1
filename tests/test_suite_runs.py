"""``heedful evaluate --benchmark``: runs of a benchmark's tasks, its table and submissions."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from scipy.stats import pearsonr
from sklearn.metrics import f1_score
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli.main import _register, app
from heedful.data.suites.reading import read_items
from heedful.data.suites.tasks import TASKS, task_named
from heedful.tasks.suites import _score
from suite_help import write_suite_task
from text_help import encoder, write_data

Made = Callable[[str], Path]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder of files for each benchmark: ours, in the official format."""
    folder = tmp_path_factory.mktemp("suites")
    for task in TASKS.values():
        write_suite_task(folder / task.suite, task, 24)
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Trains on a task, once."""
    folder = tmp_path_factory.mktemp("runs")

    def run(key: str) -> Path:
        task, out = task_named(key), folder / key.replace("/", "-")
        if not (out / "result.json").exists():
            kind = "regression" if task.is_numeric else "classification"
            own = {"benchmark": key, "validation_share": 0.3}
            tables = encoder(kind, own, tokeniser={"kind": "words", "vocabulary_size": 40})
            assert heedful.train(tables, out, data=data / task.suite / task.title)
        return out

    return run


def evaluate(*arguments: object, code: int = 0) -> str:
    _register()
    done = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
    assert done.exit_code == code, done.output
    if code:
        return str(done.exception if done.exception else done.output)
    return done.stdout


def test_a_run_is_scored_on_the_test_set_of_its_recipe_without_its_files(made: Made) -> None:
    run = made("glue/rte")
    found = json.loads(evaluate("--benchmark", "glue", run, "--json"))
    own = found["tasks"]["glue/rte"]
    assert own["files"] == ["dev.tsv"]
    assert own["examples"] == 24
    scores = json.loads(evaluate(run, "--json"))["scores"]["classification"]
    assert own["figures"] == {"accuracy": pytest.approx(100 * scores["accuracy"])}
    assert own["score"] == found["mean"]
    assert found["average"] is None
    assert found["missing"]["QNLI"] == "no run of glue/qnli"
    assert found["missing"]["AX"] == "no run of glue/mnli"
    assert len(found["missing"]) == 9


def test_numbers_are_scored_by_their_correlation(made: Made, data: Path) -> None:
    run = made("glue/sts-b")
    figures = json.loads(evaluate("--benchmark", "glue", run, "--json"))["tasks"]["glue/sts-b"]
    items = list(read_items(data / "glue/STS-B/dev.tsv", task_named("glue/sts-b")))
    gold = [float(item.labels[0]) for item in items if item.labels]
    given = [one.value for one in heedful.load(run).predict([item.rows[0] for item in items])]
    expected = 100 * pearsonr(gold, given).statistic
    assert figures["figures"]["pearson"] == pytest.approx(expected, abs=1e-6)


def test_both_test_sets_of_mnli_and_its_diagnostic(made: Made, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "submissions"
    shown = evaluate(
        *("--benchmark", "glue", made("glue/mnli"), "--data", data / "glue", "--output", out)
    )
    assert "accuracy (dev_matched)" in shown
    assert "accuracy (dev_mismatched)" in shown
    assert "mean of 1 of 9 tasks" in shown
    assert "needs all 9 tasks" in shown
    assert sorted(path.name for path in out.iterdir()) == ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"]
    for path in out.iterdir():
        lines = path.read_text(encoding="utf-8").splitlines()
        assert [line.split("\t")[0] for line in lines] == ["index", *map(str, range(24))]
        known = {"entailment", "neutral", "contradiction"}
        assert {line.split("\t")[1] for line in lines[1:]} <= known


def test_the_answers_of_multirc_are_those_of_the_classifier(
    made: Made, data: Path, tmp_path: Path
) -> None:
    run, task = made("superglue/multirc"), task_named("superglue/multirc")
    found = json.loads(
        evaluate(
            *("--benchmark", "superglue", run, "--data", data / "superglue"),
            *("--output", tmp_path / "out", "--json"),
        )
    )
    items = list(read_items(data / "superglue/MultiRC/val.jsonl", task))
    classifier = heedful.load_classifier(run)
    given = [one.label for item in items for one in classifier.classify(item.rows)]
    gold = [label for item in items for label in item.labels or ()]
    expected = 100 * f1_score(gold, given, pos_label="1", zero_division=0)
    assert found["tasks"][task.key]["figures"]["f1a"] == pytest.approx(expected)
    lines = (tmp_path / "out/MultiRC.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["idx"] for line in lines] == list(range(24))


@pytest.mark.parametrize("key", ["superglue/copa", "russian-superglue/rucos"])
def test_the_most_probable_choice_is_the_answer(
    key: str, made: Made, data: Path, tmp_path: Path
) -> None:
    run, task = made(key), task_named(key)
    folder = data / task.suite
    evaluate("--benchmark", task.suite, run, "--data", folder, "--output", tmp_path / "out")
    written = (tmp_path / "out" / task.submission_files[0]).read_text(encoding="utf-8")
    given = [json.loads(line)["label"] for line in written.splitlines()]
    items = list(read_items(folder / task.title / "test.jsonl", task))
    classifier = heedful.load_classifier(run)
    for item, label in zip(items, given, strict=True):
        likely = [one.probabilities["true"] for one in classifier.classify(item.rows)]
        best = likely.index(max(likely))
        assert label == (best if task.form == "choice" else item.names[best])


def test_a_test_set_with_labels_is_scored_where_there_is_no_development_set(
    made: Made, data: Path, tmp_path: Path
) -> None:
    """As MRPC's from Microsoft."""
    folder = tmp_path / "glue/MRPC"
    folder.mkdir(parents=True)
    labelled = (data / "glue/MRPC/dev.tsv").read_bytes()
    (folder / "msr_paraphrase_test.txt").write_bytes(b"\xef\xbb\xbf" + labelled)
    run = made("glue/mrpc")
    shown = json.loads(evaluate("--benchmark", "glue", run, "--data", tmp_path / "glue", "--json"))
    assert shown["tasks"]["glue/mrpc"]["files"] == ["msr_paraphrase_test.txt"]
    kept = json.loads(evaluate("--benchmark", "glue", run, "--json"))
    assert kept["tasks"]["glue/mrpc"]["figures"] == shown["tasks"]["glue/mrpc"]["figures"]


def test_what_cannot_be_scored_is_named(made: Made, data: Path, tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE/val.jsonl").write_bytes((data / "superglue/RTE/test.jsonl").read_bytes())
    found = json.loads(
        evaluate(
            *("--benchmark", "superglue", made("superglue/rte"), "--data", tmp_path, "--json"),
            *("--output", tmp_path / "out"),
        )
    )
    folder = tmp_path / "RTE"
    assert found["missing"]["RTE"] == (
        f"not scored: {folder} has no val.jsonl, nor a test set with labels; "
        f"no submission: {folder} has no test.jsonl"
    )
    assert found["missing"]["AX-b"].startswith("not scored: ")
    assert found["tasks"] == {}
    assert found["mean"] is None


def test_a_changed_copy_of_the_test_set_is_refused(data: Path, tmp_path: Path) -> None:
    own = {"benchmark": "glue/wnli", "validation_share": 0.3}
    tables = encoder("classification", own, tokeniser={"kind": "words", "vocabulary_size": 40})
    assert heedful.train(tables, tmp_path / "run", data=data / "glue/WNLI")
    (kept,) = (tmp_path / "run/data/classification").glob("official-1/dev.tsv")
    kept.write_bytes(kept.read_bytes().replace(b"dog", b"cow"))
    said = refused("--benchmark", "glue", tmp_path / "run")
    assert "dev.tsv" in said


def test_half_a_pair_of_sentences_is_refused(tmp_path: Path) -> None:
    task = task_named("superglue/ax-g")
    write_suite_task(tmp_path, task, 5)
    with pytest.raises(UserError, match=r"AX-g.jsonl: the number of examples is odd \(5\)"):
        _score(Mock(), task, tmp_path)


def refused(*arguments: object) -> str:
    """The line of an error, for which the command exits with code 2."""
    _register()
    from heedful.basics.errors import UserError

    done = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
    assert done.exit_code != 0
    assert isinstance(done.exception, UserError), done.output
    said = str(done.exception)
    assert "\n" not in said
    return said


def test_mistakes_are_one_clear_line(made: Made, data: Path, tmp_path: Path) -> None:
    rte, plain = made("glue/rte"), tmp_path / "plain"
    own: dict[str, Any] = {"train": "labelled.tsv", "validation": "labelled-held.tsv"}
    assert heedful.train(encoder("classification", own), plain, data=data)
    glue = ("--benchmark", "glue")
    assert "there is no benchmark 'glu'" in refused("--benchmark", "glu", rte)
    assert "is a run of glue/rte, not of superglue" in refused("--benchmark", "superglue", rte)
    assert "without a benchmark's task" in refused(*glue, plain)
    assert "are both of glue/rte; give one" in refused(*glue, rte, rte)
    assert "--benchmark needs runs" in refused(*glue)
    assert "give the benchmark's folder" in refused(*glue, rte, "--output", tmp_path / "out")
    assert "is not a folder" in refused(*glue, rte, "--data", tmp_path / "nothing")
    assert "--by-length is not for --benchmark" in refused(*glue, rte, "--by-length")
    assert "2 runs: give one" in refused(rte, plain)
    (tmp_path / "file").touch()
    output = ("--data", data / "glue", "--output", tmp_path / "file")
    assert "file is a file: give a folder" in refused(*glue, rte, *output)
    wrong = tmp_path / "wrong/RTE"
    wrong.mkdir(parents=True)
    (wrong / "dev.tsv").write_bytes((data / "glue/QNLI/dev.tsv").read_bytes())
    assert "no column 'sentence1' of RTE" in refused(*glue, rte, "--data", wrong.parent)


def test_a_run_of_several_tasks_is_scored_on_each(data: Path, tmp_path: Path) -> None:
    tables = encoder("several", {}, tokeniser={"kind": "words", "vocabulary_size": 40})
    del tables["data"]
    folder = data / "superglue"
    heads = {
        name.lower(): {
            "task": "classification",
            "data": {
                "benchmark": f"superglue/{name.lower()}",
                "train": f"{name}/train.jsonl",
                "test": f"{name}/val.jsonl",
                "validation_share": 0.3,
            },
        }
        for name in ("CB", "WiC")
    }
    assert heedful.train({**tables, "tasks": heads}, tmp_path / "run", data=folder)
    found = json.loads(evaluate("--benchmark", "superglue", tmp_path / "run", "--json"))
    assert list(found["tasks"]) == ["superglue/cb", "superglue/wic"]
    assert list(found["tasks"]["superglue/cb"]["figures"]) == ["macro_f1", "accuracy"]


def test_files_of_the_same_name_have_figures_of_their_own(data: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "dev.tsv").write_bytes((data / "glue/WNLI/dev.tsv").read_bytes())
    own = {"benchmark": "glue/wnli", "train": "a/dev.tsv", "test": ["a/dev.tsv", "b/dev.tsv"]}
    tables = encoder("classification", {**own, "validation_share": 0.3})
    assert heedful.train(tables, tmp_path / "run", data=tmp_path)
    found = json.loads(evaluate("--benchmark", "glue", tmp_path / "run", "--json"))
    assert list(found["tasks"]["glue/wnli"]["figures"]) == ["accuracy (dev 1)", "accuracy (dev 2)"]


def test_a_packed_file_is_found_by_its_official_name(data: Path, tmp_path: Path) -> None:
    import gzip

    for name in ("train.tsv", "dev.tsv"):
        content = (data / "glue/WNLI" / name).read_bytes()
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    own = {"benchmark": "glue/wnli", "validation_share": 0.3}
    tables = encoder("classification", own, tokeniser={"kind": "words", "vocabulary_size": 40})
    assert heedful.train(tables, tmp_path / "run", data=tmp_path)
    shown = evaluate("--benchmark", "glue", tmp_path / "run")
    assert "dev.tsv.gz" in shown


def test_the_benchmark_makes_one_table_and_resumes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    table = importlib.import_module("glue_table")
    changes = [
        *("training.max_steps=2", "training.validate_every=2", "training.checkpoint_every=2"),
        *("training.precision=float32", "data.validation_share=0.3", "tokeniser.kind=words"),
        *("tokeniser.vocabulary_size=40", "tokeniser.mask=false", "model.embedding_size=4"),
        "model.feature_maps=2",
    ]
    monkeypatch.setattr(table, "RESAMPLES", 20)
    monkeypatch.setattr(importlib.import_module("pretraining"), "LEARNING_RATES", (0.001, 0.01))
    command = ["glue_table.py", "--data", str(data), "--out", str(tmp_path), "--seeds", "2"]
    command += [part for change in changes for part in ("--set-fine-tuning", change)]
    monkeypatch.setattr(table, "TASKS", {name: table.TASKS[name] for name in ("cb", "stsb")})
    for only in ("majority", "bag", "kim --tasks cb", "kim --tasks cb"):
        monkeypatch.setattr("sys.argv", [*command, "--only", *only.split()])
        assert table.main() == 0
    monkeypatch.setattr("sys.argv", [*command, "--budget", "1e9", "--only", "kim", "--tasks", "cb"])
    assert table.main() == 2  # what was made with other options is not taken for this
    printed = capsys.readouterr()
    assert "was made with budget = 300000000000000.0, not 1000000000.0" in printed.err
    shown = printed.out
    kept = json.loads((tmp_path / "kim/cb/figure.json").read_text(encoding="utf-8"))
    assert len(kept["seeds"]) == 2
    assert kept["low"] <= kept["score"] <= kept["high"]
    runs = sorted((tmp_path / "kim/cb").glob("rate-*"))
    assert len(runs) == 3  # two learning rates, and one more seed of the better one
    # The made-up labels follow one another, so that a third has the most frequent one.
    majority = json.loads((tmp_path / "majority/cb/figure.json").read_text(encoding="utf-8"))
    assert majority["figures"][0] == pytest.approx(
        {"accuracy": 100 / 3, "macro_f1": 100 / 6}  # F1 of one of three labels is 2/4
    )
    constant = json.loads((tmp_path / "majority/stsb/figure.json").read_text(encoding="utf-8"))
    assert constant["score"] == 0
    assert "| CB (macro F1 / accuracy)" in shown
