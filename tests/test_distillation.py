"""Distillation and R-Drop: losses against plain PyTorch, what a teacher must be, resumption."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from heedful.attention.divergences import kullback_leibler
from heedful.basics.errors import UserError
from heedful.data.positions import Position
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.runs.registry import kind_of
from heedful.tasks.teaching import initial_layers
from heedful.training.distillation import (
    Consistent,
    Distilled,
    Predicted,
    divergence_from,
    symmetric_divergence,
)
from heedful.training.protocol import Loss
from heedful.training.report import Report
from heedful.training.train import train
from test_training import write_corpus
from text_help import LOOP, RECIPES, WORDS, encoder, write_data

CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-9, "atol": 1e-11}
PAIRS: dict[str, Any] = {
    "seed": 3,
    "data": {"train": "train.tsv", "validation": "validation.tsv", "source": "en", "target": "de"},
    "tokeniser": {"vocabulary_size": 360},
    "model": {"kind": "transformer", "layers": 1, "hidden_size": 16, "ffn_size": 16, "heads": 2},
    "training": {**LOOP, "batch_tokens": 200},
    "evaluation": {"beam": 1, "validation_pairs": 2},
}
REWARDED = {"kind": "recurrent", "attention": "hard-reinforce"}
TASKS = ("classification", "tagging", "masked", "alone", "gpt", "lstm", "pairs-of-texts")


def recipe_of(name: str) -> dict[str, Any]:
    return PAIRS if name == "pairs-of-texts" else RECIPES[name]


def with_training(recipe: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**recipe, "training": {**recipe["training"], **more}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught")
    write_data(folder)
    write_corpus(folder / "train.tsv", 60, 1)
    write_corpus(folder / "validation.tsv", 4, 2)
    return folder


@pytest.fixture(scope="module")
def teacher(folder: Path) -> Callable[[str], Path]:
    """The run of a recipe, trained once."""

    def made(name: str) -> Path:
        path = folder / "teachers" / name
        if not path.exists():
            short = with_training(recipe_of(name), max_steps=3, validate_every=3)
            assert train(short, path, data=folder)
        return path

    return made


def task_of(path: Path, **training: Any) -> Any:
    """The task of a run with other training settings, and a model in float64 without dropout."""
    run = open_run(path)
    tables = run.recipe.as_tables()
    recipe = check_recipe({**tables, "training": {**tables["training"], **training}}, "a test")
    kind = kind_of(recipe)
    torch.manual_seed(3)
    model = kind.build_model(run).double().eval()
    task = kind.build_task(run, model, recipe.training, CPU, "float32")
    if isinstance(task, Distilled):
        task.teacher.double()
    return task


def first_batch(task: Any) -> Any:
    return next(batch for _, batch in islice(task.batches(Position(5)), 1))


@pytest.mark.parametrize("name", TASKS)
def test_the_gradient_is_that_of_a_loop_in_plain_pytorch(
    teacher: Callable[[str], Path], name: str
) -> None:
    path, tau, alpha = teacher(name), 3.0, 0.7
    plain = task_of(path, label_smoothing=0.0)
    other = path.with_name(f"{name}-copy")
    shutil.copytree(path, other)
    table = {"run": str(other), "temperature": tau, "weight": alpha}
    taught = task_of(path, label_smoothing=0.0, teacher=table)
    assert isinstance(taught, Distilled)
    batch = first_batch(plain)
    own = plain.loss(batch).total
    student, master = plain.predict(plain.model, batch), plain.predict(taught.teacher, batch)
    right = torch.zeros((), dtype=torch.float64)
    for given, wanted in zip(student.logits, master.logits.detach(), strict=True):
        p = (wanted.double() / tau).softmax(0)
        log_q = (given.double() / tau).log_softmax(0)
        right = right + F.kl_div(log_q, p, reduction="sum")
    hidden = {"masked", "alone"}
    share = batch.weight / len(batch.labels) if name in hidden else 1.0
    right = (1 - alpha) * own + alpha * tau**2 * share * right
    found = taught.loss(batch)
    torch.testing.assert_close(found.total, right, **CLOSE)
    names = [key for key, p in plain.model.named_parameters() if p.requires_grad]
    gradients = [
        torch.autograd.grad(total, [model.get_parameter(key) for key in names], allow_unused=True)
        for total, model in ((found.total, taught.model), (right, plain.model))
    ]
    for key, made, expected in zip(names, *gradients, strict=True):
        assert (made is None) == (expected is None), key
        if made is not None:
            torch.testing.assert_close(made, expected, rtol=1e-8, atol=1e-10, msg=key)


def test_a_teacher_without_weight_is_not_run(teacher: Callable[[str], Path]) -> None:
    path = teacher(TASKS[0])
    other = path.with_name(f"{path.name}-weightless")
    shutil.copytree(path, other)
    table = {"run": str(other), "weight": 0.0}
    assert not isinstance(task_of(path, teacher=table), Distilled)
    assert isinstance(task_of(path, teacher={**table, "cosine": 0.5}), Distilled)


class _Fixed:
    """A task of a linear classifier in float64, whose loss is exact."""

    def __init__(self, dropout: float = 0.0) -> None:
        torch.manual_seed(6)
        self.model: Any = nn.Sequential(nn.Dropout(dropout), nn.Linear(4, 3)).double()
        self.batch = torch.randn(5, 4, dtype=torch.float64)
        self.labels = torch.tensor([0, 2, 1, 1, 0])

    def predict(self, model: Any, batch: Any) -> Any:
        states = batch * model[1].weight[:1]
        return Predicted(model(batch), self.labels, states=lambda: states)

    def loss_of(self, predicted: Any, batch: Any) -> Any:
        total = F.cross_entropy(predicted.logits, predicted.labels, reduction="sum")
        return Loss(total, {"loss": total.detach()})


class _Batch(torch.Tensor):
    weight = 5


def test_all_terms_are_exact_in_float64() -> None:
    task: Any = _Fixed()
    master = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)).double()
    taught = Distilled(task, master, temperature=2.5, weight=0.3, cosine=0.4)
    batch = task.batch.as_subclass(_Batch)
    found = taught.loss(batch).total
    student, wanted = task.model(task.batch), master(task.batch).detach()
    soft = F.kl_div(
        (student / 2.5).log_softmax(1), (wanted / 2.5).softmax(1), reduction="batchmean"
    )
    states = [task.batch * each[1].weight[:1] for each in (task.model, master)]
    cosine = F.cosine_embedding_loss(states[0], states[1].detach(), torch.ones(5))
    hard = F.cross_entropy(student, task.labels)
    right = 5 * (0.7 * hard + 0.3 * 2.5**2 * soft + 0.4 * cosine)
    torch.testing.assert_close(found.as_subclass(Tensor), right, **CLOSE)
    parameters = list(task.model.parameters())
    for own, other in zip(
        torch.autograd.grad(found, parameters), torch.autograd.grad(right, parameters), strict=True
    ):
        torch.testing.assert_close(own.as_subclass(Tensor), other, **CLOSE)
    assert all(not p.requires_grad for p in master.parameters())


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_divergence_from_a_teacher_is_that_of_its_formula(temperature: float) -> None:
    torch.manual_seed(8)
    teacher, student = (3 * torch.randn(150, 9, dtype=torch.float64) for _ in range(2))
    student.requires_grad_()
    found = divergence_from(teacher, student, temperature)
    right = kullback_leibler(teacher / temperature, student / temperature, "logits").sum()
    torch.testing.assert_close(found, right, **CLOSE)
    gradients = [torch.autograd.grad(3 * one, student)[0] for one in (found, right)]
    torch.testing.assert_close(*gradients, **CLOSE)
    narrow = divergence_from(teacher.half(), student.detach().half(), temperature)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), right.detach(), rtol=1e-2, atol=0)
    forbidden = torch.zeros(150, 9, dtype=torch.bool)
    forbidden[:, 2] = True
    some = [one.masked_fill(forbidden, -torch.inf) for one in (teacher, student)]
    found = divergence_from(*some, temperature)
    kept = [one[:, ~forbidden[0]] for one in (teacher, student)]
    torch.testing.assert_close(found, divergence_from(*kept, temperature), **CLOSE)


def test_the_divergence_of_two_passes_is_that_of_its_formula() -> None:
    torch.manual_seed(8)
    one, other = (3 * torch.randn(150, 9, dtype=torch.float64) for _ in range(2))
    passes = one.requires_grad_(), other.requires_grad_()

    def formula(first: Tensor, second: Tensor) -> Tensor:
        both = (first, second), (second, first)
        return torch.stack([kullback_leibler(*each, "logits").sum() for each in both]).sum()

    found, right = symmetric_divergence(*passes), formula(*passes)
    torch.testing.assert_close(found, right, **CLOSE)
    gradients = (torch.autograd.grad(3 * total, passes) for total in (found, right))
    for own, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(own, expected, **CLOSE)
    forbidden = torch.zeros(150, 9, dtype=torch.bool)
    forbidden[:, 2] = True
    some = [each.detach().masked_fill(forbidden, -torch.inf) for each in passes]
    kept = [each.detach()[:, ~forbidden[0]] for each in passes]
    torch.testing.assert_close(symmetric_divergence(*some), formula(*kept), **CLOSE)


def test_r_drop_is_the_papers_equations() -> None:
    task: Any = _Fixed(dropout=0.5)
    twice = Consistent(task, weight=0.8)
    torch.manual_seed(9)
    found = twice.loss(task.batch)
    torch.manual_seed(9)
    first, second = (task.model(task.batch).log_softmax(1) for _ in range(2))
    assert not torch.equal(first, second)
    labels = sum(F.nll_loss(each, task.labels, reduction="sum") for each in (first, second))
    both = F.kl_div(second, first, log_target=True, reduction="sum")
    both = both + F.kl_div(first, second, log_target=True, reduction="sum")
    right = labels + 0.8 * both / 2
    torch.testing.assert_close(found.total, right, **CLOSE)
    parameters = list(task.model.parameters())
    for own, other in zip(
        torch.autograd.grad(found.total, parameters),
        torch.autograd.grad(right, parameters),
        strict=True,
    ):
        torch.testing.assert_close(own, other, **CLOSE)


@pytest.mark.parametrize("name", ["classification", "masked", "gpt", "pairs-of-texts"])
def test_a_student_that_starts_as_its_teacher_has_nothing_to_learn(
    folder: Path, teacher: Callable[[str], Path], name: str
) -> None:
    path = teacher(name)
    table = {"run": str(path), "weight": 1.0, "cosine": 1.0, "initialise": True}
    recipe = with_training(recipe_of(name), teacher=table, max_steps=1, validate_every=1)
    out = folder / "same" / name
    assert train(recipe, out, data=folder)
    run = open_run(out)
    kind = kind_of(run.recipe)
    model = kind.build_model(run)
    kind.load_start(run, model)
    task: Any = kind.build_task(run, model.eval(), run.recipe.training, CPU, "float32")
    batch = first_batch(task)
    loss = task.loss(batch)
    assert abs(loss.total.item()) / batch.weight < 1e-5
    assert float(loss.parts["loss"]) > 0
    assert not any("teacher" in key for key in load_file(_last(out) / "model.safetensors"))


def _last(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("step-*"))[-1]


@pytest.mark.parametrize("name", ["classification", "alone", "lstm", "pairs-of-texts"])
@pytest.mark.parametrize("objective", ["teacher", "consistency"])
def test_resumed_equals_uninterrupted(
    folder: Path, teacher: Callable[[str], Path], name: str, objective: str
) -> None:
    value: Any = {"run": str(teacher(name))} if objective == "teacher" else 1.0
    recipe = with_training(recipe_of(name), **{objective: value}, max_steps=4, validate_every=2)
    recipe["training"]["checkpoint_every"] = 2
    whole, parts = (folder / kind / objective / name for kind in ("whole", "parts"))
    assert train(recipe, whole, data=folder)
    moved = Report.step

    def step(self: Report, number: int, seconds: float) -> None:
        moved(self, number, seconds)
        if number == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Report, "step", step)
        assert not train(recipe, parts, data=folder)
    assert train(recipe, parts, data=folder)
    expected, found = (load_file(_last(each) / "model.safetensors") for each in (whole, parts))
    for key, tensor in expected.items():
        assert torch.equal(tensor, found[key]), key
    records = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert objective in next(one for one in records if one["kind"] == "train")


def test_the_teacher_does_not_depend_on_the_students_seed(
    folder: Path, teacher: Callable[[str], Path]
) -> None:
    table = {"run": str(teacher("classification"))}
    outputs = []
    for seed in (5, 6):
        recipe = {**with_training(RECIPES["classification"], teacher=table), "seed": seed}
        out = folder / "seeds" / str(seed)
        train(with_training(recipe, max_steps=1, validate_every=1), out, data=folder)
        run = open_run(out)
        kind = kind_of(run.recipe)
        model = kind.build_model(run)
        before = torch.get_rng_state()
        task: Any = kind.build_task(run, model, run.recipe.training, CPU, "float32")
        assert torch.equal(before, torch.get_rng_state())
        model.train()
        assert not task.teacher.training
        batch = first_batch(task_of(teacher("classification")))
        outputs.append(task.task.predict(task.teacher, batch).logits)
    assert torch.equal(*outputs)


def test_every_other_layer_of_the_teacher() -> None:
    def stack(layers: int, width: int = 3) -> nn.Module:
        model = nn.Module()
        model.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        model.output = nn.Linear(width, 2)
        return model

    student, master = stack(2), stack(4)
    student.load_state_dict(initial_layers(student, master, "runs/t"))
    own, known = student.state_dict(), master.state_dict()
    for mine, theirs in ((0, 0), (1, 2)):
        assert torch.equal(own[f"layers.{mine}.weight"], known[f"layers.{theirs}.weight"])
    assert torch.equal(own["output.weight"], known["output.weight"])
    with pytest.raises(UserError, match=r"layers.0.weight \[3, 3\] .* runs/t has with the shape"):
        initial_layers(student, stack(4, 5), "runs/t")


def refused(folder: Path, recipe: dict[str, Any]) -> str:
    shutil.rmtree(folder / "refused", ignore_errors=True)
    with pytest.raises(UserError) as error:
        train(recipe, folder / "refused", data=folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_teacher_that_does_not_fit_is_one_line(
    folder: Path, teacher: Callable[[str], Path], tmp_path: Path
) -> None:
    def taught(recipe: dict[str, Any], name: str = "classification", **more: Any) -> dict[str, Any]:
        return with_training(recipe, teacher={"run": str(teacher(name)), **more})

    plain = RECIPES["classification"]
    other = taught({**plain, "tokeniser": {**WORDS, "vocabulary_size": 50}})
    assert "tokeniser.vocabulary_size is 50, but 60 in the teacher" in refused(folder, other)
    assert "is a run for tagging, but the student's task is classification" in refused(
        folder, taught(plain, "tagging")
    )
    missing = with_training(plain, teacher={"run": str(tmp_path / "none")})
    assert "no run at" in refused(folder, missing)
    narrow = taught({**plain, "model": {**plain["model"], "hidden_size": 8}}, cosine=1.0)
    assert "(student: 8, teacher: 16); use cosine = 0" in refused(folder, narrow)
    started = taught({**plain, "model": {**plain["model"], "hidden_size": 8}}, initialise=True)
    assert "training.teacher.initialise: the student's" in refused(folder, started)
    lines = (folder / "labelled.tsv").read_text().replace("\tred", "\tcrimson")
    (folder / "renamed.tsv").write_text(lines)
    labels = {"train": "renamed.tsv"}
    assert "has the labels blue, crimson, green, but its teacher" in refused(
        folder, taught(encoder("classification", labels))
    )


def test_a_teacher_that_was_trained_again_is_refused(
    folder: Path, teacher: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copytree(teacher("classification"), tmp_path / "teacher")
    table = {"run": str(tmp_path / "teacher")}
    short = with_training(RECIPES["classification"], teacher=table, max_steps=2, validate_every=2)
    out = tmp_path / "student"
    assert train(short, out, data=folder)
    kept = json.loads((out / "run.json").read_text(encoding="utf-8"))["teacher"]
    assert kept["run"] == table["run"]
    shutil.rmtree(tmp_path / "teacher")
    other = {**with_training(RECIPES["classification"], max_steps=2, validate_every=2), "seed": 9}
    assert train(other, tmp_path / "teacher", data=folder)
    with pytest.raises(UserError, match="which has other weights; train in a new folder"):
        task_of(out, teacher=table)


def test_a_run_with_another_vocabulary_is_refused(
    folder: Path, teacher: Callable[[str], Path]
) -> None:
    short = with_training(RECIPES["classification"], max_steps=2, validate_every=2)
    own = {**short, "tokeniser": {**WORDS, "vocabulary_size": 12}}
    out = folder / "own-vocabulary"
    assert train(own, out, data=folder)
    with pytest.raises(UserError, match="have different vocabularies; train the student in a new"):
        task_of(out, teacher={"run": str(teacher("classification"))})
    with pytest.raises(UserError, match="cannot be its own teacher"):
        task_of(out, teacher={"run": str(out)})


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        (with_training(RECIPES["attentive"], consistency=1.0), "training.penalty watches one pass"),
        (with_training(RECIPES["several"], consistency=1.0), "are for a single task"),
        (
            with_training(RECIPES["gpt"], consistency=1.0, teacher={"run": "a"}),
            "both compare outputs; leave one out",
        ),
        (
            with_training(
                {**PAIRS, "model": {"kind": "recurrent", "attention": "hard-reinforce"}},
                consistency=1.0,
            ),
            "are for translators that learn by cross-entropy alone",
        ),
    ],
)
def test_objectives_that_do_not_go_together(recipe: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        check_recipe(recipe, "the recipe")
