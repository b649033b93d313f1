"""The loop by itself, with a task of a few numbers."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import heedful
from heedful.basics.errors import UserError
from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.runs.checkpoints import STATE, whole_checkpoints
from heedful.runs.settings import LoopSettings
from heedful.tasks.pairs.recipe import TrainingSettings
from heedful.training.checkpointing import is_extra
from heedful.training.choosing import choose
from heedful.training.loop import Loop, Stop
from heedful.training.optimisers import build_optimiser
from heedful.training.parameter_groups import Group
from heedful.training.protocol import Loss, Validation
from heedful.training.report import Report

RUNS = ("whole", "parts")


class Points(NamedTuple):
    """A batch: a line's points."""

    x: Tensor
    weight: int

    def to(self, device: torch.device) -> "Points":
        return self

    def split(self, count: int, fewest: int = 1024) -> list["Points"]:
        return [self]


class Line:
    """Learns y = 2x; its validation finds what the test says."""

    def __init__(self, losses: list[float]) -> None:
        self.model = nn.Linear(1, 1)
        self.losses = iter(losses)

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, Any]]:
        return of_rank(self._order(position), rank)

    def _order(self, position: Position) -> Iterator[tuple[Position, Any]]:
        while True:
            position = Position(position.seed, position.epoch, position.index + 1)
            yield position, Points(torch.full((4, 1), position.index / 10), 4)

    def loss(self, batch: Points) -> Loss:
        total = (self.model(batch.x) - 2 * batch.x).square().sum()
        return Loss(total, {"loss": total.detach()})

    def split(self, batch: Points, count: int, fewest: int = 1024) -> list[Points]:
        return [batch]

    def validate(self) -> Validation:
        return Validation({"loss": next(self.losses)}, [])

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        assert not tensors


def loop_of(
    losses: list[float], folder: str | Path, stop: Stop | None = None, **training: Any
) -> Loop:
    given = {"max_steps": 4, "validate_every": 1, "keep_last": 1, "choose_by": "loss", **training}
    settings = TrainingSettings(**given, keep_best=1, warmup_steps=0)
    return Loop(
        Line(losses),
        settings,
        folder,
        seed=1,
        device=torch.device("cpu"),
        precision="float32",
        report=Report(4),
        stop=stop,
    )


def test_of_equal_validations_the_first_is_the_best_and_is_kept(tmp_path: Path) -> None:
    loop = loop_of([3.0, 1.0, 1.0, 2.0], tmp_path)
    with loop.report:
        assert loop.run()
    assert loop.progress.best_step == 2
    assert {point.step for point in whole_checkpoints(tmp_path / "checkpoints")} >= {2, 4}


def test_stop_is_asked_after_every_validation(tmp_path: Path) -> None:
    asked = []

    def stop(step: int, figures: dict[str, float]) -> str:
        asked.append((step, figures["loss"]))
        return "enough" if step == 4 else ""

    loop = loop_of([4.0, 3.0, 2.0, 1.0], tmp_path, stop)
    with loop.report:
        assert loop.run()
    assert asked == [(1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0)]
    assert not loop.progress.given_up  # all steps were done


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    loop = loop_of([4.0, 3.0, 2.0, 1.0], str(tmp_path / "new" / "run"))
    with loop.report:
        assert loop.run()
    assert whole_checkpoints(tmp_path / "new" / "run" / "checkpoints")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot make the run's folder .*file"):
        loop_of([1.0], tmp_path / "file")


def test_weight_decay_that_adam_scales_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    group = [Group([torch.nn.Parameter(torch.ones(2))], 1.0, 1)]
    cases: list[tuple[Any, float, bool]] = [
        ("adam", 0.1, True),
        ("adam", 0.0, False),
        ("adamw", 0.1, False),
    ]
    for optimiser, decay, noticed in cases:
        build_optimiser(group, LoopSettings(optimiser=optimiser, weight_decay=decay))
        assert ("use 'adamw'" in capsys.readouterr().err) is noticed


def test_an_interruption_does_not_change_the_averaged_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = {"max_steps": 12, "batch_tokens": 64, "warmup_steps": 2, "log_every": 4}
    recipe = {
        "task": "algorithm",
        "seed": 3,
        "data": {"kind": "copy", "sizes": [1, 3], "validation": 8, "test": 8},
        "model": {"kind": "neural-turing-machine"},
        "training": {
            **training,
            "validate_every": 4,
            "checkpoint_every": 4,
            "average_checkpoints": 3,
            "keep_last": 3,
            "threads": 1,
            "precision": "float32",
            "device": "cpu",
        },
    }
    assert heedful.train(recipe, tmp_path / "whole")
    step = Loop._step
    for stop in (6, 10):

        def stopping(loop: Any, batches: Any, stop: int = stop) -> None:
            step(loop, batches)
            if loop.progress.step == stop:
                loop._interrupt()

        monkeypatch.setattr(Loop, "_step", stopping)
        assert not heedful.train(recipe, tmp_path / "parts")
        assert (tmp_path / "parts" / "checkpoints" / f"step-{stop:08}").exists()
    assert is_extra(tmp_path / "parts" / "checkpoints" / "step-00000010")
    for text in (None, "{"):  # missing or damaged
        damaged = tmp_path / f"damaged-{text}"
        damaged.mkdir()
        if text is not None:
            (damaged / STATE).write_text(text)
        assert not is_extra(damaged)
    monkeypatch.setattr(Loop, "_step", step)
    assert heedful.train(recipe, tmp_path / "parts")
    names = [
        sorted(path.name for path in (tmp_path / one / "checkpoints").iterdir()) for one in RUNS
    ]
    assert names[0] == names[1] == ["average", *(f"step-{one:08}" for one in (4, 8, 12))]
    one, other = (
        load_file(tmp_path / run / "checkpoints" / "average" / "model.safetensors") for run in RUNS
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    results = [json.loads((tmp_path / run / "result.json").read_text()) for run in RUNS]
    assert results[0] == results[1]


def test_checkpoints_before_a_damaged_one_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = loop_of([1.0, 2.0, 3.0, 4.0], tmp_path)
    with loop.report:
        assert loop.run()
    (tmp_path / "checkpoints" / "step-00000004" / STATE).write_text("{")
    loop = loop_of([], tmp_path, validate_every=10)
    assert loop.progress.step == 1
    step = Loop._step

    def stopping(loop: Loop, batches: Any) -> None:
        step(loop, batches)
        loop._interrupt()

    monkeypatch.setattr(Loop, "_step", stopping)
    with loop.report:
        assert not loop.run()
    assert [point.step for point in whole_checkpoints(tmp_path / "checkpoints")] == [1, 2]


def test_of_lost_checkpoints_none_is_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = loop_of([1.0, 3.0, 3.0, 5.0], tmp_path, keep_last=3)
    with loop.report:
        assert loop.run()
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000001")
    loop = loop_of([4.0], tmp_path, max_steps=5)
    assert (loop.progress.best, loop.progress.best_step) == ([-3.0, -3.0], 2)
    assert "step 1, is missing or damaged; now it is step 2" in capsys.readouterr().err
    with loop.report:
        assert loop.run()
    assert choose(loop, loop.task.model)["chosen"] == "step-00000002"
