"""Blocks of ``watch`` and ``use_kernel`` affect their own thread or asyncio task only."""

import asyncio
import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.utils.checkpoint import checkpoint

from heedful.attention import Attention, MultiHeadAttention, attend, scores, use_kernel, watch
from heedful.basics.contexts import submit
from heedful.kernels import additive_selection
from heedful.kernels import additive_tiles as tiles
from heedful.kernels.additive_selection import chosen_kernel
from heedful.models.pairs import Source
from heedful.serving.engine import Engine
from heedful.tasks.pairs.guided import GuidedAlignment
from heedful.training.terms import TeacherForced
from test_guided import linked_batch
from test_inference import recurrent, translator


def at_once(*calls: Callable[[threading.Barrier], None]) -> None:
    """Run each in a thread of its own; each gets a barrier that all must reach."""
    barrier = threading.Barrier(len(calls), timeout=20)
    with ThreadPoolExecutor(len(calls)) as pool:
        for call in [pool.submit(call, barrier) for call in calls]:
            call.result()


def test_overlapping_blocks_of_use_kernel_in_two_threads() -> None:
    def first(barrier: threading.Barrier) -> None:
        with use_kernel("tiles"):
            barrier.wait()  # both are inside
            barrier.wait()
            assert chosen_kernel() == "tiles"
        barrier.wait()  # the first has left
        barrier.wait()
        assert chosen_kernel() is None

    def second(barrier: threading.Barrier) -> None:
        assert chosen_kernel() is None
        barrier.wait()
        with use_kernel("plain"):
            barrier.wait()
            barrier.wait()
            assert chosen_kernel() == "plain"
        barrier.wait()
        assert chosen_kernel() is None

    at_once(first, second)
    assert chosen_kernel() is None


def test_backward_takes_the_kernel_of_its_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever thread autograd runs it, and after the block."""
    made = []

    class Counted(tiles.PlainTiles):
        def start_gradients(self) -> None:
            made.append(chosen_kernel())
            super().start_gradients()

    monkeypatch.setattr(additive_selection, "PlainTiles", Counted)
    query, key = torch.randn(2, 8, 4, requires_grad=True), torch.randn(2, 8, 4)
    score = scores.Additive(4, 4, 4)
    with use_kernel("tiles"):
        results = score.compare(query, key), attend(query, key, key, score=score)
    for result in results:
        call = threading.Thread(target=result.sum().backward)
        call.start()
        call.join()
    assert made == ["tiles", "tiles"]


class Echo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Attention()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x)


@pytest.mark.parametrize("compiled", [False, True])
def test_two_threads_watch_one_model_and_see_their_own_calls(compiled: bool) -> None:
    torch._dynamo.reset()
    model = Echo()
    call = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
    with torch.no_grad(), watch(call):
        call(torch.zeros(1, 2, 4))  # compiled by one thread, for all

    def watching(size: int) -> Callable[[threading.Barrier], None]:
        def run(barrier: threading.Barrier) -> None:
            with torch.no_grad(), watch(call) as seen:
                barrier.wait()
                call(torch.randn(size, 2, 4))
                barrier.wait()
            assert [len(part) for part in seen["inner"]] == [size]

        return run

    def unwatched(barrier: threading.Barrier) -> None:
        barrier.wait()
        assert not model.inner.watched_at_all
        with torch.no_grad():
            call(torch.randn(5, 2, 4))
        barrier.wait()

    at_once(watching(1), watching(2), unwatched)


def test_asyncio_tasks_see_their_own_calls_and_to_thread_its_callers() -> None:
    model = Echo()

    async def task(size: int, others: asyncio.Barrier) -> list[int]:
        with watch(model) as seen:
            await others.wait()
            model(torch.randn(size, 2, 4))
            await asyncio.to_thread(model, torch.randn(10 * size, 2, 4))
            await others.wait()
        return [len(part) for part in seen["inner"]]

    async def both() -> list[list[int]]:
        others = asyncio.Barrier(2)
        return list(await asyncio.gather(task(1, others), task(2, others)))

    assert asyncio.run(both()) == [[1, 10], [2, 20]]


def test_a_copied_context_that_outlives_the_block_is_not_watched() -> None:
    model = Echo()
    with watch(model) as seen, watch(model):
        context = copy_context()
        context.run(model, torch.randn(1, 2, 4))
    context.run(model, torch.randn(1, 2, 4))
    assert len(seen["inner"]) == 1
    assert not context.run(lambda: model.inner.watched_at_all)


def test_copies_are_not_watched_nor_those_of_old_pickles() -> None:
    model = Echo()
    with watch(model) as seen:
        copies = [copy.deepcopy(model), copy.copy(model.inner)]
        for twin in copies:
            assert not twin.get_submodule("inner" if twin is copies[0] else "").watched_at_all
        copies[0](torch.randn(1, 2, 4))
    assert seen["inner"] == []
    old = {**model.inner.__getstate__(), "_watchers": []}
    loaded = Attention.__new__(Attention)
    loaded.__setstate__(old)
    assert not loaded.watched


def test_work_in_pools_keeps_its_callers_blocks() -> None:
    model = Echo()
    with ThreadPoolExecutor(1) as pool, watch(model) as seen, use_kernel("tiles"):
        submit(pool, model, torch.randn(3, 2, 4)).result()
        assert submit(pool, chosen_kernel).result() == "tiles"
        assert pool.submit(chosen_kernel).result() is None
    assert [len(part) for part in seen["inner"]] == [3]


def test_the_engine_does_a_job_as_its_asker_would() -> None:
    """And two who ask at once see their own calls."""
    model, engine = MultiHeadAttention(4, 2), Engine()

    def asks(size: int) -> Callable[[threading.Barrier], None]:
        def run(barrier: threading.Barrier) -> None:
            x = torch.randn(size, 2, 4)
            with watch(model) as seen:
                barrier.wait()
                engine.run(lambda: model(x, x)).result()
                barrier.wait()
            assert [len(part) for part in seen[""]] == [size]

        return run

    try:
        at_once(asks(1), asks(2))
        assert engine.run(lambda: model.watched_at_all).result() is False
    finally:
        engine.close()


def test_guided_alignment_sees_only_its_own_forward_pass() -> None:
    """While another thread watches the same model and translates with it."""
    model = recurrent("bahdanau").eval()
    usual = model.alignment
    assert usual is not None
    term, batch = GuidedAlignment(usual, 1.0), linked_batch(8, 3)

    def guided() -> float:
        with watch(model, term.modules, keep_gradients=True) as seen:
            model.states(Source(batch.source, batch.source_lengths), batch.target_in)
        forced = TeacherForced(
            batch.target_out, seen, torch.zeros(batch.target_out.shape), batch.links
        )
        return term.loss(forced).total.item()

    expected, counts = guided(), []

    def watches_elsewhere() -> None:
        with watch(model, term.modules) as seen:
            translator(model).translate(["the cat"])
        counts.append(len(seen[usual.module]))

    def meanwhile(*args: object) -> None:
        hook.remove()
        thread = threading.Thread(target=watches_elsewhere)
        thread.start()
        thread.join()

    hook = model.encoder.register_forward_pre_hook(meanwhile)
    assert guided() == expected
    watches_elsewhere()
    assert counts[0] == counts[1] > 0


def test_checkpointing_recomputes_in_another_thread_what_was_watched() -> None:
    """As on a GPU, where autograd has threads of its own."""
    model, x = Echo(), torch.randn(1, 3, 4, requires_grad=True)
    gradients = []
    for checkpointed in (False, True):
        with watch(model, keep_gradients=True) as seen:
            if checkpointed:
                checkpoint(copy_context().run, model, x, use_reentrant=False)
            else:
                model(x)
            loss = seen["inner"][0].square().sum()
            thread = threading.Thread(target=lambda loss=loss: gradients.append(grad(loss, x)))
            thread.start()
            thread.join()
    torch.testing.assert_close(*(found for (found,) in gradients))
