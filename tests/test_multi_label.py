"""Classification with any number of labels, against scikit-learn, transformers and definitions."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics
from starlette.testclient import TestClient
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import main
from heedful.data.positions import Position
from heedful.data.readers.multi_labelled import read_multi_labelled
from heedful.evaluation.label_sets import best_thresholds, score_sets
from heedful.evaluation.statistics import measure
from heedful.inference.explaining import explain
from heedful.interop.exporting import export_hf
from heedful.models.encoders import sequences_of
from heedful.models.label_set_layer import LabelSetLayer
from heedful.runs.opening import open_run
from heedful.serving import Limits, Served, make_application
from heedful.tasks.spec import spec_of_run
from heedful.tasks.texts.run import TextRun
from heedful.training.distillation import Predicted
from text_help import ANIMALS, COLOURS, LOOP, encoder, sentence

DATA = {
    "train": "sets.tsv",
    "validation": "held.jsonl",
    "test": "held.jsonl",
    "label": "labels",
}


def write(folder: Path) -> None:
    """The labels of a text are its red or green things and its dogs."""
    rng = random.Random(2)
    rows = []
    for _ in range(70):
        words = sentence(rng)
        rows.append((" ".join(words), sorted({"red", "green", "dog"} & set(words))))
    lines = ["text\tlabels", *(f"{text}\t{';'.join(own)}" for text, own in rows[:60])]
    (folder / "sets.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    held = [json.dumps({"text": text, "labels": own or None}) for text, own in rows[60:]]
    (folder / "held.jsonl").write_text("\n".join(held) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    write(folder)
    loop = {**LOOP, "max_steps": 240, "validate_every": 60, "checkpoint_every": 60}
    assert heedful.train(encoder("multi-label", DATA, training=loop), folder / "run", data=folder)
    return folder / "run"


def command(arguments: list[str], lines: str | None = None) -> str:
    if not main.app.registered_commands:
        main._register()
    done = CliRunner().invoke(main.app, arguments, input=lines)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_sets_are_learned_and_scored_as_scikit_learn_scores_them(run: Path) -> None:
    opened = open_run(run)
    assert isinstance(opened, TextRun)
    held = opened.multi_labelled("multi-label", "test")
    how = {"labels": "labels", "separator": ";"}
    trained = read_multi_labelled([str(run.parent / "sets.tsv")], **how)
    assert {len(one.labels) for one in trained} >= {0, 1, 2}
    reader = heedful.load(run, device="cpu")
    found = reader.predict([one.texts[0] for one in held])
    right, given = (
        np.array([[label in own for label in reader.labels] for own in sets])
        for sets in ([one.labels for one in held], [one.labels for one in found])
    )
    own = json.loads(command(["evaluate", str(run), "--json"]))["scores"]["multi-label"]
    assert own["micro_f1"] == pytest.approx(metrics.f1_score(right, given, average="micro"))
    assert own["subset_accuracy"] == pytest.approx(np.mean((right == given).all(1)))
    assert own["micro_f1"] > 0.9
    for one in found:
        assert set(one.labels) == {label for label, p in one.probabilities.items() if p >= 0.5}


def test_scores_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    right, scores = rng.random((40, 4)) < 0.3, rng.random((40, 4))
    given = scores > 0.6
    names = list("abcd")
    sets = [[[n for n, has in zip(names, row, strict=True) if has] for row in side]
            for side in (right, given)]  # fmt: skip
    report = score_sets(sets[0], sets[1], scores.tolist(), names)
    assert report.micro_f1 == pytest.approx(metrics.f1_score(right, given, average="micro"))
    assert report.macro_f1 == pytest.approx(metrics.f1_score(right, given, average="macro"))
    assert report.subset_accuracy == pytest.approx(metrics.accuracy_score(right, given))
    expected = metrics.average_precision_score(right, scores, average="macro")
    assert report.average_precision == pytest.approx(expected)
    counts = [[len(set(a) & set(b)), len(b), len(a)] for a, b in zip(*sets, strict=True)]
    kept = measure("micro_f1", {"kind": "f1", "values": counts}, [], [])
    assert kept.value_of_sum(kept.values.sum(0)) == pytest.approx(report.micro_f1)
    unseen = score_sets([["a", "new"]], [["a"]], [[0.9, 0.1]], ["a", "b"])
    assert (unseen.unseen, unseen.subset_accuracy) == ({"new": 1}, 0)
    assert unseen.average_precision == 0.5


def test_the_loss_is_that_of_transformers(run: Path) -> None:
    """``problem_type = "multi_label_classification"`` with the same logits."""
    opened, spec = open_run(run), spec_of_run(run)[1]
    model: Any = spec.load(run, device="cpu").model
    settings = opened.recipe.training  # type: ignore[attr-defined]
    task: Any = spec.build_task(opened, model, settings, torch.device("cpu"), "float32")
    batch = next(iter(task.batches(Position(0))))[1]
    model.eval()
    assert batch.labels.shape == (batch.weight, 3)
    config = BertConfig(
        vocab_size=99, hidden_size=6, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=4, num_labels=3, problem_type="multi_label_classification",
    )  # fmt: skip
    peer = BertForSequenceClassification(config).eval()
    expected = peer(batch.rows.tokens, labels=batch.labels)
    logits = expected.logits.detach().requires_grad_()
    own = task.loss_of(Predicted(logits, batch.labels), batch).total / batch.weight
    torch.testing.assert_close(own, expected.loss)
    (gradient,) = torch.autograd.grad(own, logits)
    (other,) = torch.autograd.grad(expected.loss, expected.logits)
    torch.testing.assert_close(gradient, other)
    found = task.loss(batch)
    parts = task.split(batch, 3, 1)
    assert sum(part.weight for part in parts) == batch.weight
    total = sum(float(task.loss(part).total.detach()) for part in parts)
    assert total == pytest.approx(float(found.total.detach()), rel=1e-5)


def test_windows_are_averaged_and_empty_texts_have_no_labels(run: Path) -> None:
    reader = heedful.load(run, device="cpu")
    notices: list[str] = []
    reader.notify = notices.append
    long = "the red dog sees a cat " * 20
    whole, empty = reader.predict([long, " "])
    assert whole.windows > 1
    assert (empty.labels, empty.windows) == ((), 0)
    rows = [sequences_of([row.first]) for row in reader.rows(long)]
    with torch.no_grad():
        outputs = [reader.model.heads["multi-label"](reader.model.encoder(row)) for row in rows]
    mean = torch.cat(outputs).sigmoid().mean(0).tolist()
    assert list(whole.probabilities.values()) == pytest.approx(mean, rel=1e-5)
    assert len(notices) == 2


def test_the_command_writes_the_labels_of_each_line(run: Path) -> None:
    texts = ["the red dog sees a cat", "", "the green bird eats a dog"]
    reader = heedful.load(run, device="cpu")
    expected = [one.labels for one in reader.predict(texts)]
    assert expected[0] == ("dog", "red")
    lines = command(["predict", str(run)], "\n".join(texts) + "\n").splitlines()
    assert lines == [", ".join(own) for own in expected]
    (one,) = command(["predict", str(run), "--json"], texts[0] + "\n").splitlines()
    assert json.loads(one)["labels"] == ["dog", "red"]
    assert list(reader.trace(texts[0]).decided) == ["dog, red"]


def test_the_threshold_is_that_of_the_recipe(run: Path, tmp_path: Path) -> None:
    write(tmp_path)
    loop = {**LOOP, "max_steps": 2}
    recipe = encoder("multi-label", DATA, training=loop, threshold=0.01)
    heedful.train(recipe, tmp_path / "run", data=tmp_path, start_from=run)
    (found,) = heedful.load(tmp_path / "run", device="cpu").predict(["a blue bird"])
    reached = [label for label, own in found.probabilities.items() if own >= 0.01]
    assert list(found.labels) == reached
    assert any(found.probabilities[label] < 0.5 for label in reached)


@pytest.fixture(scope="module")
def chosen(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose thresholds validation chose."""
    folder = tmp_path_factory.mktemp("chosen")
    write(folder)
    loop = {**LOOP, "max_steps": 50, "validate_every": 10, "checkpoint_every": 10}
    recipe = encoder("multi-label", DATA, training=loop, threshold="validation")
    assert heedful.train(recipe, folder / "run", data=folder)
    return folder / "run"


def test_thresholds_are_the_best_of_each_label_on_validation(chosen: Path) -> None:
    reader = heedful.load(chosen, device="cpu")
    opened = open_run(chosen)
    assert isinstance(opened, TextRun)
    held = opened.multi_labelled("multi-label", "validation")
    found = reader.predict([one.texts[0] for one in held])
    assert len(set(reader.thresholds.values())) > 1
    assert reader.thresholds == dict(
        zip(reader.labels, opened.chosen(None).weights()["heads.multi-label.chosen"].tolist(),
            strict=True)
    )  # fmt: skip
    for label, own in reader.thresholds.items():
        right = [label in one.labels for one in held]
        scores = [one.probabilities[label] for one in found]
        f1s = [
            metrics.f1_score(right, np.array(scores) >= least, zero_division=0) for least in scores
        ]
        given = [label in one.labels for one in found]
        assert given == [score >= own for score in scores]
        assert metrics.f1_score(right, given) == pytest.approx(max(f1s))
    exported = spec_of_run(chosen)[1].facts_of_layer(reader.layer)  # type: ignore[attr-defined]
    assert exported == {"thresholds": list(reader.thresholds.values())}


def test_an_export_has_the_probabilities_but_not_the_thresholds(
    chosen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    export_hf(chosen, tmp_path / "hf")
    assert "thresholds of labels are not exported: dog 0." in capsys.readouterr().err
    model = BertForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    assert model.config.problem_type == "multi_label_classification"
    tokeniser = AutoTokenizer.from_pretrained(tmp_path / "hf")
    text = "the red dog sees a cat"
    (found,) = heedful.load(chosen, device="cpu").predict([text])
    with torch.no_grad():
        wanted = model(**tokeniser([text], return_tensors="pt")).logits.sigmoid()[0].tolist()
    assert list(found.probabilities.values()) == pytest.approx(wanted, abs=1e-5)
    assert list(model.config.id2label.values()) == list(found.probabilities)


def test_the_best_thresholds_are_those_of_all() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        right, scores = rng.random((12, 3)) < 0.4, rng.random((12, 3)).round(1)
        right[:, 2] &= rng.random() < 0.5
        sets = [[n for n, has in zip("abc", row, strict=True) if has] for row in right]
        for place, least in enumerate(best_thresholds(sets, scores.tolist(), list("abc"))):
            own, values = right[:, place], scores[:, place]
            if not own.any():
                assert least == 0.5
                continue
            precision, recall, _ = metrics.precision_recall_curve(own, values)
            f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
            assert metrics.f1_score(own, values >= least) == pytest.approx(f1.max())


def test_a_label_can_be_given_if_its_threshold_is_almost_1() -> None:
    layer = LabelSetLayer(4, 2, 0.0, threshold=None)
    layer.choose([1 - 1e-8, 0.25])
    assert layer.thresholds() == [pytest.approx(1), 0.25]
    assert layer.thresholds()[0] < 1


def test_thresholds_need_validation_texts(tmp_path: Path) -> None:
    write(tmp_path)
    recipe = encoder("multi-label", {"train": "sets.tsv", "label": "labels"})
    with pytest.raises(UserError, match="needs validation texts"):
        heedful.train({**recipe, "threshold": "validation"}, tmp_path / "run", data=tmp_path)


def test_a_run_with_other_thresholds_is_started_from(chosen: Path, tmp_path: Path) -> None:
    write(tmp_path)
    recipe = encoder("multi-label", DATA, training={**LOOP, "max_steps": 2})
    assert heedful.train(recipe, tmp_path / "run", data=tmp_path, start_from=chosen)
    assert set(heedful.load(tmp_path / "run").thresholds.values()) == {0.5}


def test_classify_writes_one_line_for_each_line(run: Path, tmp_path: Path) -> None:
    write(tmp_path)
    recipe = encoder("multi-label", DATA, training={**LOOP, "max_steps": 1, "learning_rate": 1e-9})
    recipe["threshold"] = 0.66  # with 0.5, this run gives every text a label
    heedful.train(recipe, tmp_path / "run", data=tmp_path, start_from=run)
    run = tmp_path / "run"
    reader = heedful.load(run, device="cpu")
    texts = ["the red dog sees a cat", "", "the blue cat eats a cat", "the green bird eats a dog"]
    lines = "\n".join(texts) + "\n"
    found = reader.predict(texts)
    assert [one.labels for one in found[:3]] == [("dog", "red"), (), ()]
    expected = [";".join(one.labels) for one in found]
    assert command(["classify", str(run)], lines).splitlines() == expected
    scored = command(["classify", str(run), "--scores"], lines).splitlines()
    numbers = ";".join(f"{found[0].probabilities[label]:.4f}" for label in ("dog", "red"))
    assert scored[:3] == [f"dog;red\t{numbers}", "", ""]
    written = command(["classify", str(run), "--json"], lines).splitlines()
    assert [json.loads(line) for line in written] == [one.to_json() for one in found]
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps({"body": text}) + "\n" for text in texts if text))
    answers = command(["classify", str(run), str(table), "--text", "body"]).splitlines()
    assert answers == [own for own, text in zip(expected, texts, strict=True) if text]
    trace = tmp_path / "x.safetensors"
    command(["classify", str(run), "--trace", str(trace)], texts[0] + "\n")
    assert trace.exists()
    with pytest.raises(UserError, match="is a run for multi-label; use it with heedful classify"):
        heedful.load_classifier(run)


def test_the_words_of_each_label_are_explained(run: Path) -> None:
    text = "the red dog sees a cat"
    reader = heedful.load(run, device="cpu")
    (whole,) = reader.predict([text])
    without = {
        word: reader.predict([" ".join(other for other in text.split() if other != word)])[0]
        for word in ("red", "dog")
    }
    for label in ("red", "dog"):
        found = explain(reader, text, label=label)
        falls = {one.word: one.fall for one in found.words}
        fall = whole.probabilities[label] - without[label].probabilities[label]
        assert falls[label] == pytest.approx(fall, abs=1e-6)
        gone = without[label].probabilities[label]
        odds = np.log(whole.probabilities[label] / (1 - whole.probabilities[label]))
        lost = next(one.log_odds for one in found.words if one.word == label)
        assert lost == pytest.approx(odds - np.log(gone / (1 - gone)), rel=1e-4, abs=1e-5)
    lines = command(["classify", str(run), "--explain"], text + "\n\n").splitlines()
    labels, dog, red = lines[0].split("\t")
    assert (labels, lines[1]) == ("dog;red", "")
    for shown, label in ((dog, "dog"), (red, "red")):
        words = explain(reader, text, label=label).words
        most = max(words, key=lambda one: abs(one.fall))
        assert shown.startswith(f"{most.word}:{most.fall:.2f}")
    (line,) = command(["classify", str(run), "--explain", "--json"], text + "\n").splitlines()
    assert list(json.loads(line)["words"]) == ["dog", "red"]
    with pytest.raises(UserError, match="unknown label 'rot'"):
        reader.trace(text, label="rot")


def test_the_server_gives_labels_and_thresholds(chosen: Path) -> None:
    reader = heedful.load(chosen, device="cpu")
    served = Served("topics", reader)
    texts = ["the red dog sees a cat", "", "the green bird eats a dog"]
    with TestClient(make_application([served], limits=Limits())) as client:
        models = client.get("/api/models").json()
        assert models["readers"][0]["thresholds"] == reader.thresholds
        assert {"name": "classify", "title": "Classify"}.items() <= models["panels"][0].items()
        answer = client.post("/api/predict/topics", json={"inputs": texts}).json()
        expected = [one.to_json() for one in reader.predict(texts)]
        assert answer["results"] == expected
        same = client.post("/api/classify", json={"model": "topics", "text": texts}).json()
        assert same["results"] == expected
        asked = {"model": "topics", "text": texts[0], "explain": True, "label": "red"}
        (one,) = client.post("/api/classify", json=asked).json()["results"]
        assert [own["word"] for own in one["words"]] == texts[0].split()
        assert one["words"] == explain(reader, texts[0], label="red").to_json()["words"]
        pair = client.post("/api/predict/topics", json={"inputs": [["a", "b"]]})
        assert pair.status_code == 400
        assert "single texts" in pair.text


def test_rows_of_python_data_have_lists(tmp_path: Path) -> None:
    rows = [
        {"text": f"the {colour} {animal}", "labels": [colour, animal]}
        for colour in COLOURS
        for animal in ANIMALS
    ] + [{"text": "nothing", "labels": []}]
    recipe = encoder("multi-label", {"train": []}, training={**LOOP, "max_steps": 2})
    recipe["data"] = {"train": "rows", "label": "labels"}
    assert heedful.train(recipe, tmp_path / "run", data={"train": rows})
    run = open_run(tmp_path / "run")
    assert isinstance(run, TextRun)
    assert run.labels("multi-label") == sorted([*COLOURS, *ANIMALS])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a", "labels": ["x", "x"]}', "has the label 'x' twice"),
        ('{"text": "a", "labels": ["x", ""]}', "has an empty label"),
        ('{"text": "a", "labels": [1.5]}', "neither a text nor a whole number"),
        ('{"text": "a", "labels": 3}', "neither a text nor a list"),
        ('{"text": " ", "labels": []}', "'text' is empty"),
        ('{"text": "a"}', "there is no field 'labels'"),
    ],
)
def test_wrong_labels_are_refused_with_their_line(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"text": "a", "labels": "x;y"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(UserError, match=rf"rows\.jsonl:2.*{message}"):
        list(read_multi_labelled([str(path)], labels="labels"))


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        (["", ""], {}, "no example has a label"),
        (["x", ""], {}, "the only label is 'x'"),
        (["x", "x"], {}, "every example of sets.tsv has the label 'x'"),
        (["x", "y"], {"unlabelled": "skip"}, "a row without labels is an example"),
    ],
)
def test_data_without_two_labels_are_refused(
    labels: list[str], settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    rows = "".join(f"a{number}\t{own}\n" for number, own in enumerate(labels * 8))
    (tmp_path / "sets.tsv").write_text(f"text\tlabels\n{rows}")
    recipe = encoder("multi-label", {"train": "sets.tsv", "label": "labels", **settings})
    with pytest.raises(UserError, match=message):
        heedful.train(recipe, tmp_path / "run", data=tmp_path)


def test_tables_have_separators(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,labels\na,x ; y\nb,\n", encoding="utf-8")
    found = list(read_multi_labelled([str(path)], labels="labels"))
    assert [one.labels for one in found] == [("x", "y"), ()]
