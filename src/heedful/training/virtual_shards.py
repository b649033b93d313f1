"""Computes virtual shards with results that are identical for any number of processes and threads.

Every shard is computed by one thread, on its own and from the same state. Its gradients are summed
over its batches in their order, and over the shards in the order of a binary tree
(:mod:`~heedful.training.flat_gradients`). The number of shards is a power of two.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.attention.watching import seen_from_outside
from heedful.basics.contexts import submit
from heedful.basics.thread_contention import with_threads
from heedful.kernels.workers import workers
from heedful.training.flat_gradients import FlatGradients, tree_of
from heedful.training.protocol import Loss
from heedful.training.shard_state import State
from heedful.training.shards import Shards, random_numbers, seed_of
from heedful.training.strategies import BatchLoss
from heedful.training.threads import shares_nothing


class _Sums(NamedTuple):
    """The losses of a batch as Python numbers, which processes exchange."""

    weight: float
    total: float
    parts: dict[str, float]
    weights: dict[str, float]


class _Shard(NamedTuple):
    """A shard of a step; processes exchange it without its batches and gradients."""

    sums: list[_Sums]
    """The losses of its batches."""
    state: State


class VirtualShards(Shards):
    """Adds gradients of virtual shards in a fixed order.

    On the CPU, threads compute shards at the same time where :class:`Threads` would compute parts
    of a batch; otherwise one thread computes shard after shard.

    Args:
        given: the arguments of :class:`Shards`.
        parallel: whether threads may be used.
        shared: the other arguments of :class:`Shards`.
    """

    _possible: bool | None = None  # None: not tested yet

    def __init__(self, *given: Any, parallel: bool = True, **shared: Any) -> None:
        super().__init__(*given, **shared)
        self.parallel = parallel

    def gradients(self, step: int, batches: Sequence[Any], weight: float) -> list[BatchLoss]:
        """Compute the gradients of a step; returns the losses of all processes."""
        self.require_same_weights()
        self.state.begin()
        first = self.rank.index * self.rank.each
        own = dict(self.own_shards(batches))
        shards: dict[int, _Shard] = {}

        def work(numbers: range, shared: bool) -> FlatGradients:
            def gradients_of(number: int) -> FlatGradients:
                found, shards[number] = self._shard(step, number, own[number], weight, shared)
                return found

            return tree_of(numbers, gradients_of)

        threads = self._threads(batches)
        size = self.rank.each // threads
        nodes = [
            range(first + size * place, first + size * (place + 1)) for place in range(threads)
        ]
        with self._one_thread():
            if threads == 1:
                found = work(nodes[0], False)
            else:
                with with_threads(threads):
                    pool = workers(threads)
                calls = [submit(pool, work, node, True) for node in nodes]
                results = [call.result() for call in calls]
                found = tree_of(range(threads), results.__getitem__)
        return self._finish(step, found, [shards[number] for number in sorted(shards)])

    def clip(self, limit: float) -> Tensor:
        """Clip the gradients; one thread computes their norm, so that it is always the same."""
        with self._one_thread():
            return super().clip(limit)

    def reduce(self, sums: dict[str, float]) -> dict[str, float]:
        """Returns the sums: every process has the losses of all."""
        return sums

    def _finish(self, step: int, gradients: FlatGradients, shards: list[_Shard]) -> list[BatchLoss]:
        """Add the gradients and the states of all processes."""
        if self.rank.count > 1:
            gathered = self.processes.gather((gradients.used, shards))
            with self.processes.together():
                gradients.merge_processes(self.rank.count, [used for used, _ in gathered])
            shards = [shard for _, own in gathered for shard in own]
        gradients.store()
        self.state.end([shard.state for shard in shards])
        self.end_step(step)
        return [self._loss(sums) for shard in shards for sums in shard.sums]

    def _shard(
        self, step: int, number: int, batches: Sequence[Any], weight: float, shared: bool
    ) -> tuple[FlatGradients, _Shard]:
        gradients, sums = FlatGradients(self.parameters), []
        for place, batch in enumerate(batches):
            seed = seed_of(self.seed, step, number, place)
            with random_numbers(seed, shared=shared):
                loss: Loss = self.module(batch.to(self.device))
                scaled = self.scaler.scale(loss.total / weight)
                # Not into `grad`, which all threads share.
                found = torch.autograd.grad(scaled, self.parameters, allow_unused=True)
            gradients.add(found)
            sums.append(_sums(batch.weight, loss))
        return gradients, _Shard(sums, {} if shared else self.state.take())

    def _loss(self, sums: _Sums) -> BatchLoss:
        kind = torch.float32 if self.device.type == "mps" else torch.float64
        parts = {
            name: torch.tensor(value, dtype=kind, device=self.device)
            for name, value in sums.parts.items()
        }
        total = torch.tensor(sums.total, dtype=kind, device=self.device)
        return BatchLoss(sums.weight, Loss(total, parts, sums.weights))

    def _one_thread(self) -> contextlib.AbstractContextManager[None]:
        return with_threads(1) if self.device.type == "cpu" else contextlib.nullcontext()

    def _threads(self, batches: Sequence[Any]) -> int:
        """The number of threads for the shards of this process: a power of two."""
        count = min(torch.get_num_threads(), self.rank.each)
        allowed = self.parallel and self.device.type == "cpu" and not self.scaler.is_enabled()
        if count < 2 or not allowed or self._possible is False:
            return 1
        if seen_from_outside(self.task.model) or len(self.task.split(batches[0], 2, 1)) < 2:
            return 1
        if self._possible is None:
            with self._one_thread():
                self._possible = shares_nothing(self.task, self.module, batches[0])
        return 1 << (count.bit_length() - 1) if self._possible else 1


def _sums(weight: float, loss: Loss) -> _Sums:
    parts = {name: float(part) for name, part in loss.parts.items()}
    return _Sums(weight, float(loss.total.detach()), parts, dict(loss.weights))
