"""Splits each batch into parts, one per thread.

If threads share every operation, they wait at a barrier after each one. If each thread computes
some rows of the batch with the whole model, they wait once. Each thread has its own random
generator and its own gradients, which are summed in the order of the parts. Results therefore do
not depend on which thread is faster; they depend on the number of threads.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

from heedful.attention.watching import seen_from_outside
from heedful.basics.contexts import submit
from heedful.kernels.dropout import drawing_from
from heedful.kernels.workers import workers
from heedful.training.profiling import phase
from heedful.training.protocol import Loss, Task
from heedful.training.strategies import BatchLoss, LossModule, SingleProcess, batch_loss
from heedful.training.trial import trial


class Threads(SingleProcess):
    """One process that splits each batch into parts, one per thread, if possible.

    Whole batches are computed if the task does not split them, if the model is watched, or if a
    loss changes state that threads share: PyTorch's random generator, or buffers of the model, such
    as the statistics of batch normalisation. The latter is tested with the first batch.
    """

    _possible: bool | None = None  # None: not tested yet

    def forward_backward(self, batch: Any, weight: float, *, last: bool) -> list[BatchLoss]:
        """Compute the loss of a batch and add its gradients, part by part if possible."""
        parts = self.parts(batch)
        if len(parts) < 2:
            return super().forward_backward(batch, weight, last=last)
        pool = workers(len(parts))
        seeds = torch.randint(1 << 62, (len(parts),)).tolist()
        calls: list[Future[tuple[Loss, tuple[Tensor | None, ...]]]] = [
            submit(pool, self._gradients, part, weight, seed)
            for part, seed in zip(parts, seeds, strict=True)
        ]
        found = [call.result() for call in calls]
        for _, gradients in found:
            self._add(gradients)
        return [batch_loss(part.weight, loss) for part, (loss, _) in zip(parts, found, strict=True)]

    def _add(self, gradients: Sequence[Tensor | None]) -> None:
        """Add the gradients of a part to those of the parameters."""
        taken: set[int] = set()  # parameters that are added have one tensor as their gradient
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is None:
                continue
            if parameter.grad is not None:
                parameter.grad += gradient
            else:
                place = gradient.data_ptr()
                parameter.grad = gradient.clone() if place in taken else gradient
                taken.add(place)

    def parts(self, batch: Any) -> Sequence[Any]:
        """The parts of a batch for the threads; the batch alone if it is computed whole."""
        count = torch.get_num_threads()
        if count < 2 or self._possible is False or seen_from_outside(self.task.model):
            return [batch]
        parts = self.task.split(batch, count)
        if len(parts) > 1 and self._possible is None:
            self._possible = shares_nothing(self.task, self.module, batch)
        return parts if self._possible else [batch]

    def _gradients(
        self, part: Any, weight: float, seed: int
    ) -> tuple[Loss, tuple[Tensor | None, ...]]:
        with drawing_from(torch.Generator().manual_seed(seed)), phase("forward"):
            loss: Loss = self.module(part)
        with phase("backward"):  # not into `grad`, which all threads share
            gradients = torch.autograd.grad(loss.total / weight, self.parameters, allow_unused=True)
        return loss, gradients


def shares_nothing(task: Task, module: LossModule, batch: Any) -> bool:
    """Whether a loss leaves PyTorch's generator and the model's buffers unchanged.

    Args:
        task: the task.
        module: its model and loss.
        batch: a batch on the device of the model.
    """
    with trial(task) as before, drawing_from(torch.Generator()):
        module(batch)
        random = torch.get_rng_state()
        return torch.equal(before.random, random) and all(
            torch.equal(buffer, before.buffers[name]) for name, buffer in task.model.named_buffers()
        )
