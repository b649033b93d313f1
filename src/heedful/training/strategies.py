"""Strategies compute the gradients of a step. The strategies here use a single process.

The loop asks its strategy for gradients, their norm, sums over processes and the tensors of a
checkpoint. It does not know how many processes, threads or devices there are.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from heedful.basics.thread_contention import without_contention
from heedful.data.positions import SINGLE, Rank
from heedful.runs.checkpoints import model_tensors
from heedful.training.operations import operation_counter
from heedful.training.optimisers import optimiser_tensors
from heedful.training.protocol import Loss, Task
from heedful.training.trial import trial

T = TypeVar("T")


class BatchLoss(NamedTuple):
    """The loss of a batch, or of a part of it, whose gradients were computed."""

    weight: float
    """Number of tokens (or examples) that the loss is summed over."""
    loss: Loss


def batch_loss(weight: float, loss: Loss) -> BatchLoss:
    """The loss of a batch after its gradients were computed; keeps no graph in memory."""
    return BatchLoss(weight, loss._replace(total=loss.total.detach()))


class LossModule(nn.Module):
    """A task's model and loss as one module call, which PyTorch's wrappers can wrap.

    ``DistributedDataParallel`` and ``fully_shard`` act on a module's ``forward``. That of a model
    is not enough: a loss also reads hidden states, the output table and attention weights.

    Args:
        task: the task to train; its model is the only submodule.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.model = task.model
        self._loss = task.loss

    def forward(self, batch: Any) -> Loss:
        """The loss of a batch."""
        return self._loss(batch)


class Strategy(Protocol):
    """The contract of a strategy. With several processes, each has its own loop and strategy.

    All processes call these methods in the same order, except :meth:`operations`.
    """

    rank: Rank
    """The rank of this process; rank 0 writes the files of the run."""

    def total(self, weight: int) -> int:
        """The sum of a number over all processes, for example of the weight of a step."""
        ...

    def any(self, flag: bool) -> bool:
        """Whether a flag is set in any process (interrupted, or out of time)."""
        ...

    def agreed(self, value: T) -> T:
        """The value that rank 0 gives, for decisions that must be the same in all processes."""
        ...

    def gradients(self, step: int, batches: Sequence[Any], weight: float) -> list[BatchLoss]:
        """Compute the gradients of a step: loss / ``weight``, summed over all processes.

        Args:
            step: the number of the step, from 1.
            batches: the batches of this process: for each accumulation step, ``rank.each`` batches.
            weight: the weight of the whole step, from :meth:`total`.

        Returns:
            The loss of each batch, or of each part that was computed separately. Losses that are
            returned in several processes are added by :meth:`reduce`.
        """
        ...

    def operations(self, batch: Any) -> int:
        """Floating-point operations of a batch in this process, forward and backward.

        Adds gradients, but does not change random generators, buffers or the task.
        """
        ...

    def clip(self, limit: float) -> Tensor:
        """Scale gradients to a norm of at most ``limit``; returns their norm before clipping."""
        ...

    def reduce(self, sums: dict[str, float]) -> dict[str, float]:
        """The sums over all processes, by name."""
        ...

    def checkpoint(
        self, optimiser: torch.optim.Optimizer
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The complete tensors of the model and of the optimiser, for the process that writes."""
        ...


MakeStrategy = Callable[[Task, list[nn.Parameter], torch.device, torch.amp.GradScaler], Strategy]
"""Makes a strategy from a task, its trained parameters, their device and the loss scaler."""


class SingleProcess:
    """A single process that computes the loss of whole batches.

    Args:
        task: the task to train.
        parameters: the parameters to compute gradients of.
        device: the device of the model.
        scaler: scales losses in float16.
    """

    rank = SINGLE

    def __init__(
        self,
        task: Task,
        parameters: list[nn.Parameter],
        device: torch.device,
        scaler: torch.amp.GradScaler,
    ) -> None:
        self.task, self.parameters = task, parameters
        self.device, self.scaler = device, scaler
        self.module = LossModule(task)

    def total(self, weight: int) -> int:
        """Returns the weight."""
        return weight

    def any(self, flag: bool) -> bool:
        """Returns the flag."""
        return flag

    def agreed(self, value: T) -> T:
        """Returns the value."""
        return value

    def gradients(self, step: int, batches: Sequence[Any], weight: float) -> list[BatchLoss]:
        """Compute the gradients batch by batch."""
        return [
            loss
            for number, batch in enumerate(batches, start=1)
            for loss in self.forward_backward(
                batch.to(self.device), weight, last=number == len(batches)
            )
        ]

    def forward_backward(self, batch: Any, weight: float, *, last: bool) -> list[BatchLoss]:
        """Compute the loss of a batch and add the gradients of loss / ``weight``.

        Args:
            batch: a batch on the device.
            weight: the weight of the whole step.
            last: whether this is the last batch of the step; strategies for several processes that
                override this method need no communication before it.
        """
        with without_contention(self.device):
            loss: Loss = self.module(batch)
            torch.autograd.backward(self.scaler.scale(loss.total / weight))
        return [batch_loss(batch.weight, loss)]

    def operations(self, batch: Any) -> int:
        """Floating-point operations of a whole batch."""
        eager = torch.compiler.set_stance("force_eager")
        with eager, trial(self.task), operation_counter() as counter:
            torch.autograd.backward(self.module(batch).total)
        return counter.get_total_flops()

    def clip(self, limit: float) -> Tensor:
        """Scale gradients to a norm of at most ``limit``; returns their norm before clipping."""
        return torch.nn.utils.clip_grad_norm_(self.parameters, limit)

    def reduce(self, sums: dict[str, float]) -> dict[str, float]:
        """Returns the sums."""
        return sums

    def checkpoint(
        self, optimiser: torch.optim.Optimizer
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The tensors of the model and of the optimiser."""
        return model_tensors(self.task.model), optimiser_tensors(optimiser)
