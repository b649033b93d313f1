"""A batch learnt in shares, a thread each.

Threads that share out every single operation wait for one another after each; a thread that takes
some of a batch's rows through the whole model waits once. Each draws its own random numbers and
has its own gradients, which are summed in the shares' order, so that a result does not depend on
which thread was faster. It does depend on how many there are.
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
from heedful.training.protocol import Loss, Task

Learnt = tuple[Any, Loss]
"""Some of a batch, and its loss."""


class Shares:
    """Gradients of a task's batches, on the processor's threads.

    Args:
        task: what is learnt.
        parameters: what the gradients are of.
        possible: whether batches may be shared out: on the CPU, by a model that is not compiled,
            without scaling of losses.
    """

    def __init__(self, task: Task, parameters: Sequence[Tensor], *, possible: bool) -> None:
        self.task, self.parameters = task, parameters
        self._possible: bool | None = None if possible else False  # None: not known yet

    def of(self, batch: Any) -> Sequence[Any]:
        """The batch's shares; itself alone where it is better learnt whole."""
        count = torch.get_num_threads()
        if count < 2 or self._possible is False or seen_from_outside(self.task.model):
            return [batch]
        shares = self.task.split(batch, count)
        if len(shares) > 1 and self._possible is None:
            self._possible = self._draws_by_dropout_alone(batch)
        return shares if self._possible else [batch]

    def learn(self, shares: Sequence[Any], weight: float) -> list[Learnt]:
        """Add the gradients of the shares' losses, divided by ``weight``; the losses."""
        pool = workers(len(shares))
        seeds = torch.randint(1 << 62, (len(shares),)).tolist()
        calls: list[Future[tuple[Loss, tuple[Tensor | None, ...]]]] = [
            submit(pool, self._gradients, share, weight, seed)
            for share, seed in zip(shares, seeds, strict=True)
        ]
        found = [call.result() for call in calls]
        for _, gradients in found:
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                if parameter.grad is None:
                    parameter.grad = gradient
                elif gradient is not None:
                    parameter.grad += gradient
        return [(share, loss) for share, (loss, _) in zip(shares, found, strict=True)]

    def _gradients(
        self, share: Any, weight: float, seed: int
    ) -> tuple[Loss, tuple[Tensor | None, ...]]:
        with drawing_from(torch.Generator().manual_seed(seed)):
            loss = self.task.loss(share)
        # Not into `grad`, which belongs to all.
        return loss, torch.autograd.grad(loss.total / weight, self.parameters, allow_unused=True)

    def _draws_by_dropout_alone(self, batch: Any) -> bool:
        """Whether a loss leaves PyTorch's own generator as it is, which all threads draw from.

        What the loss changes is put back.
        """
        kept = {name: tensor.clone() for name, tensor in self.task.tensors().items()}
        before = torch.get_rng_state()
        with drawing_from(torch.Generator()):
            self.task.loss(batch)
        untouched = torch.equal(before, torch.get_rng_state())
        torch.set_rng_state(before)
        self.task.load(kept)
        return untouched
