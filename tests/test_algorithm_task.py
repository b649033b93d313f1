"""The task 'algorithm': training, exact resumption, evaluation, predictions and traces."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

import heedful
from heedful.attention import watch
from heedful.basics.errors import UserError
from heedful.cli import evaluate
from heedful.cli import train as train_command
from heedful.data.positions import Position
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe
from heedful.tasks.algorithm.batches import TEST, AlgorithmBatch, held_out, training_batches
from heedful.tasks.algorithm.evaluation import AlgorithmEvaluation
from heedful.tasks.algorithm.texts import bit_texts, read_vector, vector_texts
from heedful.tasks.spec import Opening, spec_named, spec_of_run
from heedful.viewing.page import export_html

MACHINE = {"hidden_size": 12, "slots": 8, "slot_size": 6}
MODELS: dict[str, dict[str, Any]] = {
    "ntm": {"kind": "neural-turing-machine", **MACHINE},
    "dnc": {"kind": "differentiable-neural-computer", **MACHINE, "read_heads": 2},
    "lstm": {"kind": "recurrent-sequence", "layers": 1, "hidden_size": 24},
}
RECIPES = sorted(
    path.stem
    for path in find_recipe("ntm-copy").parent.glob("*.toml")
    if read_recipe(path).get("task") == "algorithm"
)
models = pytest.mark.parametrize("model", MODELS)


def recipe(model: str = "ntm", **training: Any) -> dict[str, Any]:
    return {
        "task": "algorithm",
        "data": {"kind": "copy", "bits": 2, "sizes": [1, 3], "validation": 40, "test": 50},
        "model": MODELS[model],
        "training": {
            "max_steps": 20,
            "batch_tokens": 60,
            "learning_rate": 0.01,
            "schedule": "constant",
            "warmup_steps": 0,
            "validate_every": 10,
            "checkpoint_every": 10,
            "precision": "float32",
            "device": "cpu",
            "threads": 1,
            **training,
        },
    }


@pytest.fixture(scope="module", params=MODELS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind of model."""
    place: Path = tmp_path_factory.mktemp("runs") / request.param
    assert heedful.train(recipe(request.param), place)
    return place


def test_a_small_model_learns_to_copy(tmp_path: Path) -> None:
    tables = recipe("lstm", max_steps=250, validate_every=250, batch_tokens=200)
    tables["data"] |= {"sizes": [1, 1]}
    heedful.train(tables, tmp_path / "run")
    opened, spec = spec_of_run(tmp_path / "run")
    found = spec.evaluate(opened, None, AlgorithmEvaluation(), Opening(device="cpu"))
    assert found.figures["wrong_bits"].value < 5
    assert found.figures["bits"].value < 1


@models
def test_a_stopped_training_is_resumed_exactly(model: str, tmp_path: Path) -> None:
    heedful.train(recipe(model), tmp_path / "whole")
    heedful.train(recipe(model, max_steps=7), tmp_path / "stopped")
    assert heedful.train(recipe(model), tmp_path / "stopped")
    one, other = (
        load_file(tmp_path / name / "checkpoints" / "step-00000020" / "model.safetensors")
        for name in ("whole", "stopped")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_loss_is_a_sum_over_the_answered_bits(run: Path) -> None:
    opened, spec = spec_of_run(run)
    model = spec.load(run).model
    task = spec.build_task(opened, model, opened.recipe.training, torch.device("cpu"), "float32")
    _, batch = next(training_batches(opened.recipe.data, 60, Position(1)))
    loss = task.loss(batch)
    probability = model(batch.inputs)[:, batch.answered].sigmoid().double()
    right = torch.where(batch.targets > 0, probability, 1 - probability)
    torch.testing.assert_close(loss.total.double(), -right.log().sum(), rtol=1e-5, atol=1e-6)
    assert batch.weight == right.numel()
    parts = [task.loss(part).total for part in batch.split(3, fewest=1)]
    torch.testing.assert_close(sum(parts), loss.total, rtol=1e-5, atol=1e-6)


def test_an_evaluation_counts_every_bit_of_every_example(run: Path) -> None:
    opened, spec = spec_of_run(run)
    found = spec.evaluate(opened, None, AlgorithmEvaluation([2, 5]), Opening(device="cpu"))
    model = spec.load(run, device="cpu").model
    for size in (2, 5):
        wrong = exact = bits = rows = 0
        nats = 0.0
        for drawn in held_out(opened.recipe.data, 1, TEST, 50, size):
            batch = AlgorithmBatch.of(drawn)
            for row, target in zip(batch.inputs, batch.targets, strict=True):
                with torch.no_grad():
                    logits = model(row.unsqueeze(0))[0, -size:]
                own = int(((logits > 0).float() != target).sum())
                nats -= float(torch.distributions.Bernoulli(logits=logits).log_prob(target).sum())
                wrong, exact, rows = wrong + own, exact + (own == 0), rows + 1
                bits += target.numel()
        assert (rows, bits) == (50, 100 * size)
        assert found.figures[f"wrong_bits_at_{size}"].value == pytest.approx(100 * wrong / bits)
        assert found.figures[f"exact_at_{size}"].value == pytest.approx(100 * exact / rows)
        per_sequence = found.figures[f"bits_at_{size}"].value
        assert per_sequence == pytest.approx(nats / math.log(2) / rows, rel=1e-4)
    assert [row[:2] for row in found.tables[0].rows] == [("2", "50"), ("5", "50")]


def test_an_evaluation_without_sizes_has_an_output_for_each_example(run: Path) -> None:
    opened, spec = spec_of_run(run)
    found = spec.evaluate(opened, None, AlgorithmEvaluation(), Opening(device="cpu"))
    assert found.examples is not None
    assert found.outputs == found.examples.outputs
    references = found.examples.references
    wrong = sum(
        a != b
        for one, other in zip(found.outputs, references, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    assert len(references) == 50
    bits = sum(one.count("0") + one.count("1") for one in references)
    assert found.figures["wrong_bits"].value == pytest.approx(100 * wrong / bits)


def test_predictions_are_of_drawn_or_given_vectors(run: Path) -> None:
    predictor = heedful.load(run, device="cpu")
    [drawn] = predictor.predict([{"size": 3, "seed": 9}])
    given = {"vectors": [*(f"{one}0" for one in drawn.right), "001"], "answers": 3}
    [again] = predictor.predict([given])
    assert again.outputs == drawn.outputs
    assert again.log_probability == pytest.approx(drawn.log_probability, rel=1e-5)
    assert (again.right, again.wrong_bits) == (None, None)
    pairs = zip("".join(drawn.outputs), "".join(drawn.right), strict=True)
    assert drawn.wrong_bits == sum(one != other for one, other in pairs)
    [every] = predictor.predict([{"vectors": ["0 1 0", "0.5 -1 0"]}])
    assert len(every.outputs) == 2


def test_a_trace_shows_steps_and_slots(run: Path) -> None:
    spec = spec_of_run(run)[1]
    predictor = spec.load(run, device="cpu")
    trace = spec.trace(predictor, json.dumps({"size": 3}))
    assert {one.name for one in trace.maps} == set(predictor.model.attention_axes())
    assert len(trace.axes["steps"]) == 7
    assert trace.axes["steps"].steps
    assert len(trace.decided) == 3
    [drawn] = predictor.predict([{"size": 3}])
    assert trace.decided == drawn.outputs
    assert sum(trace.log_probabilities) == pytest.approx(drawn.log_probability, rel=1e-5)
    assert [label.split(" → ")[1] for label in trace.axes["steps"].labels[4:]] == drawn.outputs
    for one in trace.maps:
        assert one.key_axis == "slots"
        assert trace.axes["slots"].labels[-1] == "slot 8"
        if one.name == "links":
            assert (one.query_axis, one.step_axis) == ("slots", "steps")
        else:
            assert one.query_axis == "steps"
    with watch(predictor.model) as seen, torch.no_grad():
        predictor.predict([{"size": 3}])
    for name in seen:
        found = torch.cat(list(seen[name]), 2)[0]
        torch.testing.assert_close(found.flatten(), _in_steps(trace[name]).flatten())


def _in_steps(one: Any) -> torch.Tensor:
    """``[H, S · Q, K]``, as the calls of a module follow one another."""
    rows: torch.Tensor = one.rows
    return rows


def test_a_trace_becomes_a_page(run: Path, tmp_path: Path) -> None:
    spec = spec_of_run(run)[1]
    trace = spec.trace(spec.load(run, device="cpu"), json.dumps({"size": 2}))
    export_html([trace], tmp_path / "page.html")
    assert "copy" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, 'give either "size" or "vectors"'),
        ({"size": 2, "vectors": ["010"]}, 'give either "size" or "vectors"'),
        ({"size": 2, "answers": 1}, '"answers" goes with "vectors"'),
        ({"vectors": ["01"]}, "vector 1: 2 numbers, but the model reads 3"),
        ({"vectors": ["0 1 x"]}, "vector 1: '0 1 x' is not a list of numbers"),
        ({"vectors": ["010", "0 nan 0"]}, "vector 2: '0 nan 0' has a number that is not between"),
        ({"size": 2, "sizes": 1}, "'sizes': extra inputs are not permitted"),
        ({"size": 5000}, "'size': input should be less than or equal to 1000"),
    ],
)
def test_bad_input_gives_one_line(
    given: dict[str, Any], message: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.getbasetemp() / "refusing"
    if not place.exists():
        heedful.train(recipe("lstm", max_steps=1), place)
    predictor = heedful.load(place, device="cpu")
    with pytest.raises(UserError, match=r"input 1.*") as raised:
        predictor.predict([given])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_trace_that_is_too_large_is_refused(tmp_path: Path) -> None:
    tables = recipe("dnc", max_steps=1)
    tables["model"] = {**MODELS["dnc"], "slots": 2000}
    tables["data"] |= {"validation": 1, "sizes": [1, 1]}
    tables["training"]["batch_tokens"] = 3
    heedful.train(tables, tmp_path / "run")
    spec = spec_of_run(tmp_path / "run")[1]
    with pytest.raises(UserError, match="101 steps, too many to show with 2,000 slots"):
        spec.trace(spec.load(tmp_path / "run", device="cpu"), json.dumps({"size": 50}))


def test_the_command_line_trains_and_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    app = typer.Typer()
    train_command.register(app)
    evaluate.register(app)

    def command(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    sets = {
        "training.max_steps": 1,
        "training.threads": 1,
        "training.batch_tokens": 8,
        "data.validation": 1,
        "data.test": 4,
        "data.sizes": "[1, 2]",
        "model.slots": 8,
    }
    given = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    done = command("train", "ntm-copy", "--out", "run", *given)
    assert done.exit_code == 0, done.output
    done = command("evaluate", "run", "--size", "2", "--size", "4", "--json")
    assert set(json.loads(done.stdout)["figures"]) >= {"wrong_bits_at_2", "bits_at_4"}
    for wrong, message in (
        (("evaluate", "run", "--size", "0"), "--size 0: 0 vectors: give 1 to 1000"),
        (("evaluate", "run", "--data", "x.tsv"), "examples are drawn at random; leave out --data"),
        (("train", "ntm-copy", "--out", "x", "--set", "data.kind=sort"), "unknown 'data.kind'"),
        (("train", "ntm-copy", "--out", "x", "--set", "data.bitz=3"), "did you mean 'bits'?"),
    ):
        error = command(*wrong).exception
        assert isinstance(error, UserError)
        assert message in str(error)
        assert "\n" not in str(error)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_name_models_of_moderate_size(name: str) -> None:
    found: Any = check_recipe(read_recipe(find_recipe(name)), name)
    spec_named("algorithm").require_usable(found)
    assert found.training.clip_norm is not None


def test_vectors_are_read_as_they_are_written() -> None:
    vectors = torch.tensor([[0.0, 1.0, 1.0], [0.25, -1.0, 3.0]])
    read = [read_vector(text, 3, "x") for text in vector_texts(vectors)]
    assert torch.equal(torch.tensor(read), vectors)
    assert bit_texts(vectors[:1]) == ["011"]
    assert read_vector("1", 1, "x") == [1.0]
