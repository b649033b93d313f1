"""Calibration against definitions, scikit-learn and PyTorch; temperatures in runs."""

import json
import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from torch import nn
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.cli import main
from heedful.evaluation.calibration import fit_temperature, measure_calibration
from heedful.runs.opening import open_run
from heedful.tasks import calibrating
from heedful.tasks.texts.run import TextRun
from text_help import LABELLED, LOOP, TAGGED, encoder, write_data


def predictions(count: int = 500) -> tuple[list[float], list[bool]]:
    draw = random.Random(4)
    confidences = [draw.random() for _ in range(count)]
    return confidences, [draw.random() < 0.3 + 0.5 * one for one in confidences]


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_errors_are_those_of_the_papers_equations(bins: int) -> None:
    confidences, right = predictions()
    found = measure_calibration(confidences, right, bins=bins)
    gaps, weights = [], []
    for place in range(bins):
        inside = [
            number
            for number, one in enumerate(confidences)
            if place / bins < one <= (place + 1) / bins
        ]
        if inside:
            accuracy = np.mean([right[number] for number in inside])
            gaps.append(abs(accuracy - np.mean([confidences[number] for number in inside])))
            weights.append(len(inside) / len(confidences))
    assert found.expected_error == pytest.approx(np.dot(gaps, weights), abs=1e-12)
    assert found.maximum_error == pytest.approx(max(gaps), abs=1e-12)


def test_the_diagram_is_that_of_scikit_learn() -> None:
    confidences, right = predictions()
    found = measure_calibration(confidences, right, bins=10)
    accuracy, mean = calibration_curve(right, confidences, n_bins=10)
    shown = [own for own in found.bins if own.count]
    assert np.allclose([own.accuracy for own in shown], accuracy)
    assert np.allclose([own.confidence for own in shown], mean)


def test_certain_and_impossible_predictions_have_bins() -> None:
    found = measure_calibration([0.0, 1.0], [False, True])
    assert (found.bins[0].count, found.bins[-1].count) == (1, 1)
    assert found.expected_error == 0
    assert measure_calibration([], []).expected_error == 0


def test_the_temperature_is_that_of_a_gradient_descent() -> None:
    draw = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(400, 5, generator=draw, dtype=torch.float64)
    gold = torch.multinomial((logits / 2.5).softmax(1), 1, generator=draw)[:, 0]
    found = fit_temperature(
        lambda temperature: float(nn.functional.cross_entropy(logits / temperature, gold))
    )
    inverse = torch.ones((), dtype=torch.float64, requires_grad=True)
    descent = torch.optim.LBFGS([inverse], max_iter=100, tolerance_grad=1e-12)

    def step() -> torch.Tensor:
        descent.zero_grad()
        loss = nn.functional.cross_entropy(logits * inverse, gold)
        loss.backward()
        return loss

    descent.step(step)
    assert found == pytest.approx(1 / float(inverse.detach()), rel=1e-4)
    assert 2 < found < 3


def test_right_predictions_do_not_determine_a_temperature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "write_temperature", lambda *given: None)
    run: Any = SimpleNamespace(chosen=lambda checkpoint: SimpleNamespace(path=tmp_path))
    for margin in (1.0, 4.0, 12.0):
        # In float64, the cross-entropy is 0 below some temperature.
        found = calibrating.calibrate(
            run,
            "label",
            None,
            lambda temperature: measure_calibration([1.0], [True]),
            lambda temperature, own=margin: -math.log(1 / (1 + math.exp(-own / temperature))),
        )
        assert "do not determine the temperature" in capsys.readouterr().err
        assert math.copysign(1, found.temperature.after) == 1


def command(arguments: list[str]) -> str:
    if not main.app.registered_commands:
        main._register()
    done = CliRunner().invoke(main.app, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


DATA: dict[str, dict[str, Any]] = {
    "classification": {**LABELLED, "test": "labelled-held.tsv"},
    "tagging": {**TAGGED, "test": "tagged-held.tsv"},
    "chain": {**TAGGED, "test": "tagged-held.tsv"},
}


@pytest.fixture(scope="module", params=list(DATA))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration")
    write_data(folder)
    # Some held-out tags and labels are wrong, so that certainty does not pay.
    tags, labels = folder / "tagged-held.tsv", folder / "labelled-held.tsv"
    tags.write_text(tags.read_text(encoding="utf-8").replace("DET", "ADJ", 4), encoding="utf-8")
    header, *lines = labels.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    place = header.split("\t").index("label")
    known = sorted({row[place] for row in rows})
    for row in rows[:3]:
        row[place] = known[known.index(row[place]) - 1]
    labels.write_text("\n".join([header, *map("\t".join, rows)]) + "\n", encoding="utf-8")
    kind = request.param
    more = {"crf": True} if kind == "chain" else {}
    task = "tagging" if kind == "chain" else kind
    loop = {**LOOP, "max_steps": 40 if kind == "classification" else 8}
    recipe = encoder(task, DATA[kind], training=loop, **more)
    assert heedful.train(recipe, folder / "run", data=folder)
    return folder / "run"


def loss_of(run: Path, temperature: float | None = None) -> tuple[float, Any]:
    """The mean cross-entropy of the validation examples by the run's own predictions."""
    predictor = heedful.load(run, device="cpu")
    if temperature is not None:
        predictor = predictor.at(temperature)
    opened = open_run(run)
    assert isinstance(opened, TextRun)
    if opened.recipe.task == "classification":
        held = opened.labelled("classification", "validation")
        found = predictor.classify([one.texts[0] for one in held])
        values = [own.probabilities[one.label] for own, one in zip(found, held, strict=True)]
        return float(-np.log(values).mean()), predictor
    examples = opened.tagged("tagging", "validation")
    logits = predictor.logits([one.words for one in examples])
    with torch.no_grad():
        every = predictor.log_probabilities(logits)
    values = [
        float(row[predictor.tags.index(tag)])
        for own, one in zip(every, examples, strict=True)
        for row, tag in zip(own, one.tags, strict=True)
        if tag
    ]
    return -float(np.mean(values)), predictor


def test_a_temperature_is_kept_and_used(run: Path) -> None:
    first, plain = loss_of(run)
    answer = plain.predict(["the red dog sees a cat"])[0]
    made = json.loads(command(["calibrate", str(run), "--json", "--device", "cpu"]))
    assert made["before"] == pytest.approx(first, rel=1e-5)
    after, scaled = loss_of(run)
    assert made["after"] == pytest.approx(after, rel=1e-5)
    assert after < first
    assert scaled.temperature == made["value"] != 1
    # Neither a larger nor a smaller temperature is better.
    for factor in (0.9, 1.1):
        assert loss_of(run, made["value"] * factor)[0] > after
    again = scaled.predict(["the red dog sees a cat"])[0]
    if made["head"] == "classification":
        assert again.label == answer.label
        assert again.probability != answer.probability
        assert sum(again.probabilities.values()) == pytest.approx(1)
        trace = scaled.trace("the red dog sees a cat")
        assert list(trace.decided) == [again.label]
    else:
        assert again.tags == answer.tags
        assert again.probabilities != answer.probabilities
    told = command(["info", str(run)])
    assert f"temperature {made['value']:.4g}" in told
    scores = json.loads(command(["evaluate", str(run), "--json", "--device", "cpu"]))
    own = scores["scores"][made["head"]]["calibration"]
    assert own["temperature"] == made["value"]
    assert {"expected_calibration_error", "before_scaling"} <= own.keys()
    shown = command(["plot", str(run), "--calibration", "--device", "cpu"])
    assert "expected calibration error" in shown
    command(["plot", str(run), "--calibration", "--output", str(run.parent / "plot.svg")])
    assert "confidence" in (run.parent / "plot.svg").read_text(encoding="utf-8")


def test_the_brier_score_is_that_of_scikit_learn(run: Path) -> None:
    opened = open_run(run)
    if opened.recipe.task != "classification":
        pytest.skip("taggers have no Brier score")
    assert isinstance(opened, TextRun)
    scores = json.loads(command(["evaluate", str(run), "--json", "--device", "cpu"]))
    own = scores["scores"]["classification"]["calibration"]
    held = opened.labelled("classification", "test")
    classifier = heedful.load(run, device="cpu")
    found = classifier.classify([one.texts[0] for one in held])
    table = np.array([list(one.probabilities.values()) for one in found])
    gold = [one.label for one in held]
    expected = brier_score_loss(gold, table, labels=list(classifier.labels), scale_by_half=False)
    assert own["brier_score"] == pytest.approx(expected, rel=1e-6)


def test_another_checkpoint_and_a_changed_file_are_noticed(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not (run / "calibration.json").exists():
        command(["calibrate", str(run), "--device", "cpu"])
    opened = open_run(run)
    other = next(point for point in opened.checkpoints() if point.path != opened.chosen().path).step
    capsys.readouterr()
    assert heedful.load(run, device="cpu", checkpoint=other).temperature == 1
    assert "probabilities are not calibrated" in " ".join(capsys.readouterr().err.split())
    kept = (run / "calibration.json").read_text(encoding="utf-8")
    (run / "calibration.json").write_text(kept.replace('"value": ', '"value": 1'), encoding="utf-8")
    try:
        with pytest.raises(UserError, match=r"calibration\.json"):
            heedful.load(run, device="cpu")
    finally:
        (run / "calibration.json").write_text(kept, encoding="utf-8")


def test_only_labels_are_calibrated(tmp_path: Path) -> None:
    write_data(tmp_path)
    loop = {**LOOP, "max_steps": 2}
    data = {"train": "rated.tsv", "label": "number"}
    heedful.train(encoder("regression", data, training=loop), tmp_path / "numbers", data=tmp_path)
    with pytest.raises(UserError, match="only the probabilities of labels and tags"):
        command(["calibrate", str(tmp_path / "numbers")])
    data = {"train": "labelled.tsv"}
    heedful.train(encoder("classification", data, training=loop), tmp_path / "run", data=tmp_path)
    with pytest.raises(UserError, match="no validation examples"):
        command(["calibrate", str(tmp_path / "run")])
