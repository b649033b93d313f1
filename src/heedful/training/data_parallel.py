"""PyTorch's ``DistributedDataParallel``: sums gradients while they are computed.

The batches and random numbers of a step are those of its virtual shards
(:mod:`~heedful.training.shards`). The order of additions is PyTorch's, so that results for other
numbers of processes agree within rounding.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from heedful.basics.errors import UserError
from heedful.basics.thread_contention import without_contention
from heedful.training.processes import Processes
from heedful.training.profiling import phase
from heedful.training.protocol import Loss, Task
from heedful.training.shard_state import State
from heedful.training.shards import Shards, random_numbers, seed_of
from heedful.training.strategies import BatchLoss, batch_loss


class DataParallel(Shards):
    """Sums the gradients of processes with ``DistributedDataParallel``.

    Parameters that a batch does not use are allowed. Gradients are exchanged once a step, in the
    backward pass of the last batch. The arguments are those of :class:`Shards`.
    """

    def __init__(
        self,
        task: Task,
        parameters: list[nn.Parameter],
        device: torch.device,
        scaler: torch.amp.GradScaler,
        *,
        seed: int,
        shards: int,
        processes: Processes,
    ) -> None:
        super().__init__(
            task, parameters, device, scaler, seed=seed, shards=shards, processes=processes
        )
        self.parallel: DistributedDataParallel | None = None
        self._has_state: bool | None = None  # None: not known before the first step

    def wrapped(self) -> DistributedDataParallel:
        """The model and its loss, with PyTorch's hooks that exchange gradients."""
        return DistributedDataParallel(
            self.module, find_unused_parameters=True, broadcast_buffers=False
        )

    def gradients(self, step: int, batches: Sequence[Any], weight: float) -> list[BatchLoss]:
        """Compute the gradients of a step; returns the losses of this process."""
        if self.parallel is None and self.rank.count > 1:
            self.require_same_weights()
            self.parallel = self.wrapped()
        if self._watches_state:
            self.state.begin()
        losses: list[BatchLoss] = []
        states: list[State] = []
        shards = self.own_shards(batches)
        for shard, own in shards:
            for place, batch in enumerate(own):
                last = shard == shards[-1][0] and place == len(own) - 1
                with random_numbers(seed_of(self.seed, step, shard, place)):
                    loss = self._batch(batch.to(self.device), weight, last)
                losses.append(batch_loss(batch.weight, loss))
            states.append(self.state.take() if self._watches_state else {})
        self._combine(states)
        self.end_step(step)
        return losses

    def _batch(self, batch: Any, weight: float, last: bool) -> Loss:
        """Add the gradients of a batch; those of all processes are summed with the last one."""
        module, count = self.parallel or self.module, self.rank.count
        waits: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self.parallel is not None and not last:
            waits = self.parallel.no_sync()
        with waits, self.processes.together(), without_contention(self.device):
            with phase("forward"):
                loss: Loss = module(batch)
            with phase("backward"):
                # PyTorch's wrapper divides the sum over processes by their number.
                torch.autograd.backward(self.scaler.scale(loss.total * (count / weight)))
        return loss

    @property
    def _watches_state(self) -> bool:
        """Whether to look for changed state. On cards, only if the first step has changed any:
        comparing values waits for the card."""
        return self._has_state is not False or self.device.type == "cpu"

    def _combine(self, states: list[State]) -> None:
        """Combine the states of all shards, if losses change any."""
        changed = any(states)
        if self._has_state is None:
            self._has_state = self.any(changed)
        if self._has_state:
            states = [state for own in self.processes.gather(states) for state in own]
            self.state.end(states)
        elif changed:
            names = ", ".join(sorted({name for state in states for name in state}))
            raise UserError(
                f"a loss changed {names} for the first time after the first step; use "
                "training.exact_reduction = true"
            )
