"""Fewer threads where another program has the cores: what is detected, and that results stay."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.attention.additive import additive_context
from heedful.attention.masks import Grid
from heedful.basics import thread_contention
from heedful.basics.thread_contention import Trials, WaitingTime, keep_threads, without_contention
from heedful.kernels import additive_compiled as compiled
from heedful.kernels import additive_rows as rows
from heedful.kernels import compiling
from heedful.tasks.options import use_threads
from heedful.training import loop
from heedful.training.train import train


@pytest.fixture(autouse=True)
def _three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    monkeypatch.setattr(thread_contention, "_notified", threading.Event())
    monkeypatch.setattr(thread_contention, "_keeping", 0)  # as if no test had asked for threads
    yield
    torch.set_num_threads(before)


CPU = torch.device("cpu")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(thread_contention.time, "monotonic", lambda: self.now)


def test_one_thread_works_alone_where_most_of_the_time_is_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, waiting_time = Clock(monkeypatch), WaitingTime()
    for _ in range(1000):
        waiting_time.record(0.01, 0.009)
        waiting_time.record(0.0002, 0.00001)
    assert not waiting_time.alone
    waiting_time.record(0.04, 0.01)
    assert not waiting_time.alone, "it is too early to judge"
    waiting_time.record(0.04, 0.01)
    assert waiting_time.alone
    clock.now += 2.1
    assert not waiting_time.alone
    waiting_time.record(0.1, 0.01)
    clock.now += 3.9
    assert waiting_time.alone, "still crowded: twice as long"
    clock.now += 0.2
    waiting_time.record(0.1, 0.1)
    waiting_time.record(0.1, 0.01)
    clock.now += 1.9
    assert waiting_time.alone
    clock.now += 0.2
    assert not waiting_time.alone, "after a good while it is short again"
    assert capsys.readouterr().err.count("other programs use the processor") == 1


class Crowded(WaitingTime):
    """One thread alone, always."""

    @property
    def alone(self) -> bool:
        return True


def test_calls_are_made_by_threads_or_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    makers: list[int] = []
    all_there = threading.Barrier(3)

    def call(number: int) -> int:
        makers.append(threading.get_ident())
        if parallel:
            all_there.wait(10)
        return 0

    parallel = True
    waiting_time = WaitingTime()
    monkeypatch.setattr(compiling, "waiting_time", waiting_time)
    compiling.in_parallel(call, [(0,), (1,), (2,)])
    assert len(set(makers)) == 3
    assert waiting_time._passed >= waiting_time._lost >= 0
    assert waiting_time._passed > 0
    makers.clear()
    parallel = False
    monkeypatch.setattr(compiling, "waiting_time", Crowded())
    compiling.in_parallel(call, [(0,), (1,), (2,)])
    assert set(makers) == {threading.get_ident()}
    with pytest.raises(MemoryError):
        compiling.in_parallel(lambda number: int(number == 1), [(0,), (1,)])


def context_and_gradients() -> list[Tensor]:
    torch.manual_seed(2)
    parts = [torch.randn(1, 90, 40, requires_grad=True) for _ in range(3)]
    parts.append(torch.randn(40, requires_grad=True))
    grid = Grid((90, 90), torch.device("cpu"))
    context = additive_context(*parts, None, grid)
    assert context is not None
    return [context, *torch.autograd.grad(context.square().sum(), parts)]


@pytest.mark.skipif(compiled.library() is None, reason="there is no compiler")
def test_results_of_a_kernel_do_not_depend_on_other_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = context_and_gradients()
    monkeypatch.setattr(compiling, "waiting_time", Crowded())
    monkeypatch.setattr(rows, "waiting_time", Crowded())
    threads = []
    scores = compiled.CompiledTiles.scores

    def seen(own: Any, *parts: slice) -> Tensor:
        threads.append(torch.get_num_threads())
        return scores(own, *parts)

    monkeypatch.setattr(compiled.CompiledTiles, "scores", seen)
    alone = context_and_gradients()
    assert set(threads) == {1}
    assert torch.get_num_threads() == 3
    torch.testing.assert_close(alone, usual, rtol=1e-4, atol=1e-4)
    threads.clear()
    with keep_threads():
        kept = context_and_gradients()
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    kept += context_and_gradients()
    assert set(threads) == {3}
    assert all(torch.equal(one, other) for one, other in zip(2 * usual, kept, strict=True))


class Machine:
    """Where trials take what they are told to take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
        self.seconds, self.trials = seconds, 0
        monkeypatch.setattr(thread_contention, "trial", self.trial)

    def trial(self, threads: int) -> float:
        self.trials += 1
        return self.seconds[f"of_{threads}"]


def test_the_fewest_threads_that_are_as_fast_are_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, trials = Clock(monkeypatch), Trials()
    machine = Machine(monkeypatch, of_1=0.03, of_2=0.016, of_3=0.011)
    assert trials.threads(3) == 3
    assert machine.trials == 3
    for pause in (1, 2, 4, 8, 10, 10):
        before = machine.trials
        clock.now += pause - 0.1
        assert trials.threads(3) == 3
        assert machine.trials == before, "more and more seldom, where all is well"
        clock.now += 0.2
        assert trials.threads(3) == 3
        assert machine.trials == before + 3
    clock.now += 10.1
    machine.seconds = {"of_1": 0.03, "of_2": 0.03, "of_3": 0.09}
    assert trials.threads(3) == 2
    assert not capsys.readouterr().err.count("2 of 3") - 1
    clock.now += 4.1
    machine.seconds = {"of_1": 0.03, "of_2": 0.09, "of_3": 0.2}
    assert trials.threads(3) == 1
    machine.seconds = {"of_1": 0.03, "of_2": 0.016, "of_3": 0.011}
    for _ in range(12):
        clock.now += 4.1
        chosen = trials.threads(3)
    assert chosen == 3
    assert not capsys.readouterr().err, "it is said once"
    assert trials.threads(1) == 1


def test_a_trial_computes_with_the_threads_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    tanh = torch.tanh
    monkeypatch.setattr(torch, "tanh", lambda x: used.append(torch.get_num_threads()) or tanh(x))
    assert thread_contention.trial(2) > 0
    assert set(used) == {2}
    assert torch.get_num_threads() == 3


def test_threads_are_as_before_after_the_block() -> None:
    def fail() -> None:
        with without_contention(CPU, lambda usual: usual - 1):
            assert torch.get_num_threads() == 2
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == 3
    with keep_threads(), without_contention(CPU, lambda usual: usual - 1):
        assert torch.get_num_threads() == 3
    with without_contention(
        torch.device("cuda"), lambda usual: pytest.fail("a card needs no threads")
    ):
        assert torch.get_num_threads() == 3
    torch.set_num_threads(1)
    with without_contention(CPU, lambda usual: pytest.fail("nothing is tried with one thread")):
        assert torch.get_num_threads() == 1


def test_each_item_is_computed_with_fewer_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        thread_contention,
        "without_contention",
        lambda device: without_contention(CPU, lambda usual: usual - 1),
    )
    seen: list[int] = []

    def items() -> Iterator[int]:
        for number in range(3):
            seen.append(torch.get_num_threads())
            yield number

    found = []
    for item in thread_contention.each_without_contention(items(), CPU):
        found.append(item)
        assert torch.get_num_threads() == 3
    assert (found, seen) == ([0, 1, 2], [2, 2, 2])


def test_a_commands_threads_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_contention, "_keeping", 0)
    use_threads(None)
    with without_contention(CPU, lambda usual: 1):
        assert torch.get_num_threads() == 1
    use_threads(2)
    gc.collect()
    with without_contention(CPU, lambda usual: 1):
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize("asked", [None, 2])
def test_training_keeps_the_threads_that_were_asked_for(
    asked: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole batch is learnt with fewer threads, unless their number was given."""
    tried: list[int] = []
    monkeypatch.setattr(
        loop,
        "without_contention",
        lambda device: without_contention(device, lambda usual: tried.append(usual) or 1),
    )
    text = "\n".join(f"one two {word}\teins zwei {word}" for word in "abcdefghijkl")
    (tmp_path / "train.tsv").write_text(text, encoding="utf-8")
    recipe: dict[str, Any] = {
        "data": {"train": "train.tsv", "source": "en", "target": "de"},
        "tokeniser": {"vocabulary_size": 360},
        "model": {
            "kind": "transformer",
            "layers": 1,
            "hidden_size": 16,
            "ffn_size": 16,
            "heads": 2,
        },
        "training": {"max_steps": 2, "batch_tokens": 100, "device": "cpu"},
    }
    recipe["training"] |= {} if asked is None else {"threads": asked}
    train(recipe, tmp_path / "run", data=tmp_path)
    assert bool(tried) == (asked is None)
    assert torch.get_num_threads() == 3, "the caller's number is as before"
