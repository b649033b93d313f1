"""Strategies, which compute the gradients of a step. The ones here use a single process.

The loop asks its strategy for gradients, their norm, sums over processes and the tensors of a
checkpoint. It does not know how many processes, threads or devices there are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from heedful.basics.thread_contention import without_contention
from heedful.data.positions import SINGLE, Rank
from heedful.runs.checkpoints import model_tensors
from heedful.training.operations import operation_counter
from heedful.training.optimisers import optimiser_tensors
from heedful.training.protocol import Loss, Task
from heedful.training.trial import trial


class Learnt(NamedTuple):
    """The loss of a batch, or of a part of it, whose gradients were added."""

    weight: float
    """Tokens (or examples) the loss is a sum over."""
    loss: Loss


class LossModule(nn.Module):
    """A task's model and loss as one module call, which PyTorch's wrappers can wrap.

    ``DistributedDataParallel`` and ``fully_shard`` act on a module's ``forward``. That of a model
    is not enough: a loss reads its states, its output table and its attention weights.

    Args:
        task: what is learnt; its model is the only submodule.
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

    All processes call these methods, but :meth:`learn` and :meth:`clip`, at the same places.
    """

    rank: Rank
    """The rank of this process; rank 0 writes the files of the run."""

    def total(self, weight: int) -> int:
        """The sum of a number over all processes, such as the weight of a step."""
        ...

    def any(self, flag: bool) -> bool:
        """Whether a flag is set in any process: it was interrupted, or its time is over."""
        ...

    def learn(self, batch: Any, weight: float, *, last: bool) -> list[Learnt]:
        """Add the gradients of a batch's loss, divided by ``weight``, to those of the parameters.

        Args:
            batch: on the device.
            weight: of the whole step, as :meth:`total` gave it.
            last: whether this is the step's last batch, after which the gradients of all processes
                are added up; with accumulation the batches before it need no communication.

        Returns:
            The loss of the batch, or of each part that was learnt by itself.
        """
        ...

    def operations(self, batch: Any) -> int:
        """Floating-point operations of a batch, forward and backward, as this process computes it.

        Counting changes neither random generators, nor buffers, nor the task; it adds gradients.
        """
        ...

    def clip(self, limit: float) -> Tensor:
        """Scale gradients to a norm of at most ``limit``; returns their norm before clipping."""
        ...

    def reduce(self, sums: dict[str, float]) -> dict[str, float]:
        """The sums of all processes, by name."""
        ...

    def checkpoint(
        self, optimiser: torch.optim.Optimizer
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The whole tensors of the model and of the optimiser, for the process that writes."""
        ...


MakeStrategy = Callable[[Task, list[nn.Parameter], torch.device, torch.amp.GradScaler], Strategy]
"""Makes a strategy of a task, its trained parameters, their device and the scaler of losses."""


class SingleProcess:
    """A single process that computes the loss of whole batches.

    Args:
        task: what is learnt.
        parameters: what the gradients are of.
        device: where the model is.
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
        """The weight itself."""
        return weight

    def any(self, flag: bool) -> bool:
        """The flag itself."""
        return flag

    def learn(self, batch: Any, weight: float, *, last: bool) -> list[Learnt]:
        """Add the gradients of a batch's loss."""
        with without_contention(self.device):
            loss: Loss = self.module(batch)
            torch.autograd.backward(self.scaler.scale(loss.total / weight))
        return [Learnt(batch.weight, loss)]

    def operations(self, batch: Any) -> int:
        """Floating-point operations of a whole batch."""
        eager = torch.compiler.set_stance("force_eager")
        with eager, trial(self.task), operation_counter() as counter:
            torch.autograd.backward(self.module(batch).total)
        return counter.get_total_flops()

    def clip(self, limit: float) -> Tensor:
        """Scale the gradients down to a norm of at most ``limit``; their norm before."""
        return torch.nn.utils.clip_grad_norm_(self.parameters, limit)

    def reduce(self, sums: dict[str, float]) -> dict[str, float]:
        """The sums as they are."""
        return sums

    def checkpoint(
        self, optimiser: torch.optim.Optimizer
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The tensors of the model and of the optimiser."""
        return model_tensors(self.task.model), optimiser_tensors(optimiser)
