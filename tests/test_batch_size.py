"""The size of a step in tokens, and batches chosen from memory."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from tests.test_loop import Line, Points
from tests.text_help import LANGUAGE, LOOP, write_data
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.data.positions import SINGLE, Position, Rank
from heedful.runs.checkpoints import open_checkpoint
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.runs.settings import LoopSettings
from heedful.training import batch_size
from heedful.training.batch_size import Memory, fit_batch, memory_of, reset_peak
from heedful.training.processes import Processes, join
from heedful.training.sharing import with_shards
from heedful.training.strategies import SingleProcess
from heedful.training.train import train
from processes_help import in_processes

CPU = torch.device("cpu")
TRAINING = {key: value for key, value in LOOP.items() if key != "batch_tokens"} | {"max_steps": 4}
MEASURED = {**TRAINING, "global_batch_tokens": 240, "batch_from_memory": True}


@pytest.mark.parametrize(
    ("whole", "each", "shards", "expected"),
    [
        (8192, 4096, 1, 2),
        (9000, 4096, 1, 2),
        (11000, 4096, 1, 3),
        (1000, 4096, 1, 1),
        (65536, 4096, 4, 4),
    ],
)
def test_batches_of_a_step_are_the_nearest_number(
    whole: int, each: int, shards: int, expected: int
) -> None:
    given = {"global_batch_tokens": whole, "batch_tokens": each, "virtual_shards": shards}
    found = LoopSettings.model_validate(given)
    assert found.accumulation_steps == expected
    again = LoopSettings.model_validate(found.as_tables())  # the recipe of a run has both
    assert again == found


def test_settings_that_contradict_each_other_are_refused() -> None:
    cases: dict[str, dict[str, Any]] = {
        "accumulation_steps is 2 for global_batch_tokens 8192 and batch_tokens 4096, not 3": {
            "global_batch_tokens": 8192,
            "accumulation_steps": 3,
        },
        "batch_from_memory divides a step: set global_batch_tokens": {"batch_from_memory": True},
        "is 200000 times batch_tokens 1; raise batch_tokens": {
            "global_batch_tokens": 200_000,
            "batch_tokens": 1,
        },
    }
    for message, given in cases.items():
        with pytest.raises(ValidationError, match=message):
            LoopSettings.model_validate(given)


def test_the_number_of_processes_does_not_change_the_size_of_a_step(tmp_path: Path) -> None:
    training = {**TRAINING, "global_batch_tokens": 960, "batch_tokens": 120}
    recipe = check_recipe({**LANGUAGE, "training": training}, "here")
    assert recipe.training.accumulation_steps == 8
    processes = Processes()
    processes.rank = Rank(0, 4)
    shared = with_shards(recipe, tmp_path / "run", processes).training
    assert (shared.virtual_shards, shared.accumulation_steps) == (4, 2)


def test_without_the_new_settings_nothing_changes() -> None:
    assert LoopSettings().accumulation_steps == 1
    assert LoopSettings(accumulation_steps=7).accumulation_steps == 7
    assert LoopSettings(global_batch_tokens=10_000, batch_from_memory=True).batch_tokens == 10_000


class Sized(Line):
    """A task whose batches have as many rows as a batch has tokens; it draws random numbers."""

    def __init__(self, tokens: int) -> None:
        super().__init__([])
        self.tokens = tokens
        self.model.register_buffer("seen", torch.zeros(()))

    def _order(self, position: Position) -> Iterator[tuple[Position, Any]]:
        while True:
            yield position, Points(torch.ones(self.tokens, 1), self.tokens)

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, Any]]:
        return self._order(position)

    def loss(self, batch: Points) -> Any:
        assert isinstance(self.model.seen, Tensor)
        self.model.seen += torch.rand(())
        return super().loss(batch)


@pytest.mark.parametrize(
    ("free", "whole", "expected"),
    # 100 bytes a token; 60 % of the free memory may be used, and twice the last trial must fit.
    [
        (10**9, 1000, (1000, 1)),
        (10**9, 10_000, (10_000, 1)),
        (10**6, 10_000, (3334, 3)),
        (400_000, 10_000, (2000, 5)),
        (200_000, 3000, (1000, 3)),
    ],
)
def test_the_largest_batch_that_fits_is_found_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, free: int, whole: int, expected: tuple[int, int]
) -> None:
    tried: list[int] = []
    tasks: list[Sized] = []

    def build(settings: LoopSettings) -> Sized:
        tried.append(settings.batch_tokens)
        tasks.append(Sized(settings.batch_tokens))
        return tasks[-1]

    monkeypatch.setattr(batch_size, "reset_peak", lambda device: None)
    monkeypatch.setattr(
        batch_size, "memory_of", lambda device: Memory(500 + 100 * max(tried, default=0), free)
    )
    settings = LoopSettings(global_batch_tokens=whole, batch_from_memory=True, optimiser="sgd")
    lines: list[str] = []
    found = fit_batch(settings, build, SingleProcess, CPU, 1, lines.append, processes=Processes())
    assert (found.batch_tokens, found.accumulation_steps) == expected
    assert LoopSettings.model_validate(found.as_tables()) == found
    assert f"batches of {expected[0]:,} tokens, {expected[1]:,} per step" in lines[0]
    for task in tasks:
        assert task.model.seen == 0
        assert all(parameter.grad is None for parameter in task.model.parameters())
    assert tried == sorted(tried)


def test_a_batch_that_does_not_fit_and_unknown_memory_are_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = LoopSettings(global_batch_tokens=4096, batch_from_memory=True)
    how: tuple[Any, ...] = (settings, lambda one: Sized(one.batch_tokens), SingleProcess, CPU, 1)
    used = iter([0, 10**6])
    monkeypatch.setattr(batch_size, "memory_of", lambda device: Memory(next(used), 1000))
    with pytest.raises(UserError, match=r"a batch of 1,024 tokens needs more than 0\.0 GiB"):
        fit_batch(*how, print, processes=Processes())
    monkeypatch.setattr(batch_size, "memory_of", lambda device: None)
    with pytest.raises(UserError, match=r"free memory of cpu is not known here; set training"):
        fit_batch(*how, print, processes=Processes())


def test_the_memory_of_this_process_is_read() -> None:
    reset_peak(CPU)
    before = memory_of(CPU)
    if before is None:
        pytest.skip("this system has no /proc")
    kept = torch.ones(2**24)
    after = memory_of(CPU)
    assert after is not None
    assert after.used >= before.used
    assert after.used >= kept.nbytes
    assert before.free > 0


def weights(run: Path) -> dict[str, Tensor]:
    return open_checkpoint(open_run(run).chosen().path).weights()


def test_a_run_stores_what_it_measured_and_resumes_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(tmp_path)
    monkeypatch.setattr(batch_size, "_FIRST", 30)
    recipe = {**LANGUAGE, "training": MEASURED}
    free = iter([100, 1000])

    def memory(device: torch.device) -> Memory:
        return Memory(0, next(free, 1000))

    # The first trial needs more than half of the memory, so that no second one is made.
    monkeypatch.setattr(batch_size, "memory_of", memory)
    monkeypatch.setattr(batch_size, "_trial", lambda *given: 40)
    assert train(recipe, tmp_path / "whole", data=tmp_path)
    text = (tmp_path / "whole" / "recipe.toml").read_text()
    assert re.search(r"^batch_tokens = 30$", text, re.MULTILINE)
    assert re.search(r"^accumulation_steps = 8$", text, re.MULTILINE)
    assert "batches of 30 tokens, 8 per step of 240" in capsys.readouterr().err
    # Resumed with more memory, the run keeps its batches.
    assert train(recipe, tmp_path / "whole", data=tmp_path)
    assert "is already trained" in capsys.readouterr().err
    longer = {**recipe, "training": {**MEASURED, "max_steps": 6, "schedule": "constant"}}
    with pytest.raises(UserError, match=r"training\.schedule"):
        train(longer, tmp_path / "whole", data=tmp_path)
    given = {**TRAINING, "batch_tokens": 30, "accumulation_steps": 8}
    assert train({**LANGUAGE, "training": given}, tmp_path / "given", data=tmp_path)
    found, expected = weights(tmp_path / "whole"), weights(tmp_path / "given")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_trial_steps_do_not_change_a_run(tmp_path: Path) -> None:
    if memory_of(CPU) is None:
        pytest.skip("this system has no /proc")
    write_data(tmp_path)
    assert train({**LANGUAGE, "training": MEASURED}, tmp_path / "measured", data=tmp_path)
    own = open_run(tmp_path / "measured").recipe.training
    given = {
        **TRAINING,
        "batch_tokens": own.batch_tokens,
        "accumulation_steps": own.accumulation_steps,
    }
    assert train({**LANGUAGE, "training": given}, tmp_path / "given", data=tmp_path)
    found, expected = weights(tmp_path / "measured"), weights(tmp_path / "given")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


SHARED = {**TRAINING, "schedule": "constant", "precision": "float32", "max_steps": 4}
BY_TWO = {**SHARED, "global_batch_tokens": 240, "batch_tokens": 60, "batch_from_memory": True}


def measured_by_two(out: Path, data: Path) -> dict[str, Any]:
    """A size that two processes agree on, rank 1 with less memory; half of a training."""
    own = join()
    tried: list[int] = []
    lines: list[str] = []

    def build(settings: LoopSettings) -> Sized:
        tried.append(settings.batch_tokens)
        return Sized(settings.batch_tokens)

    def memory(device: torch.device) -> Memory:
        return Memory(500 + 100 * max(tried, default=0), (10**9, 800_000)[own.rank.index])

    settings = LoopSettings(
        global_batch_tokens=10_000, batch_from_memory=True, optimiser="sgd", virtual_shards=2
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_size, "reset_peak", lambda device: None)
        patch.setattr(batch_size, "memory_of", memory)
        found = fit_batch(settings, build, SingleProcess, CPU, 1, lines.append, processes=own)
        patch.setattr(batch_size, "memory_of", lambda device: Memory(0, 10**9))
        half = {**LANGUAGE, "training": {**BY_TWO, "max_steps": 2}}
        ended = train(half, out, data=data)
    return {
        "found": (found.batch_tokens, found.accumulation_steps),
        "tried": tried,
        "lines": lines,
        "ended": ended,
    }


def test_processes_agree_on_a_size_that_any_number_of_them_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path)
    by_two = in_processes(2, measured_by_two, tmp_path / "run", tmp_path)
    for found in by_two:
        assert isinstance(found, dict), found
        # Rank 1 may use 0.6 × 800,000 / 2 bytes, because both share the memory of the machine.
        assert found["tried"] == [1024, 2048]
        assert found["found"] == (1667, 3)
        assert found["ended"]
        assert "batches of 1,667 tokens, 6 per step of 10,000" in found["lines"][0]
        assert "in the process with the least memory left" in found["lines"][0]
    own = open_run(tmp_path / "run").recipe.training
    assert (own.virtual_shards, own.batch_tokens, own.accumulation_steps) == (2, 60, 2)

    def never(*given: Any) -> None:
        raise AssertionError("a resumed run has measured its batches")

    monkeypatch.setattr(batch_size, "_trial", never)
    assert train({**LANGUAGE, "training": BY_TWO}, tmp_path / "run", data=tmp_path)
    given = {**SHARED, "batch_tokens": 60, "accumulation_steps": 2, "virtual_shards": 2}
    assert train({**LANGUAGE, "training": given}, tmp_path / "given", data=tmp_path)
    found, expected = weights(tmp_path / "run"), weights(tmp_path / "given")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
