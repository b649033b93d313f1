"""Virtual shards: the parts of a step, which several processes and threads share.

A step has V shards. Shard s has its own batches of the common order, and random numbers that depend
only on the seed, the step, the shard and the accumulation step. With N processes, process r
computes the shards from ``r × V / N`` on. N must divide V.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from heedful.basics.errors import UserError
from heedful.data.positions import Rank
from heedful.kernels.dropout import drawing_from
from heedful.training.processes import Processes
from heedful.training.protocol import Task
from heedful.training.shard_state import ShardState
from heedful.training.strategies import SingleProcess

T = TypeVar("T")


def require_shards(shards: int, processes: int) -> None:
    """Raise UserError if processes cannot share the virtual shards of a step evenly."""
    if shards % processes:
        most = max(count for count in range(1, processes) if shards % count == 0)
        raise UserError(
            f"{processes} processes cannot share training.virtual_shards = {shards} evenly; start "
            f"{most} {'process' if most == 1 else 'processes'}, or set training.virtual_shards of "
            f"a new run to a multiple of {processes}"
        )


def seed_of(seed: int, step: int, shard: int, accumulation: int) -> int:
    """The seed of the random numbers of a batch, from 0 to 2⁶³ − 1.

    Args:
        seed: the seed of the run.
        step: the number of the step, from 1.
        shard: the number of the shard in the step, from 0; −1 for what follows the step.
        accumulation: the number of the batch in the shard, from 0.

    Example:
        >>> seed_of(1, 1, 0, 0) == seed_of(1, 1, 0, 0), seed_of(1, 1, 0, 0) == seed_of(1, 1, 1, 0)
        (True, False)
    """
    text = f"shard {seed} {step} {shard} {accumulation}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextmanager
def random_numbers(seed: int, *, shared: bool = False) -> Iterator[None]:
    """Draw the random numbers of training from this seed in the block.

    Args:
        seed: from :func:`seed_of`.
        shared: whether other threads use PyTorch's generators at the same time. Then only dropout
            on the CPU may draw.
    """
    if not shared:
        torch.manual_seed(seed)
    with drawing_from(torch.Generator().manual_seed(seed ^ 1)):
        yield


class Shards(SingleProcess):
    """Base of the strategies that compute virtual shards.

    Args:
        task: the task to train.
        parameters: the parameters to compute gradients of.
        device: the device of the model.
        scaler: scales losses in float16.
        seed: the seed of the run.
        shards: V, the number of virtual shards.
        processes: the processes that share them.

    Raises:
        UserError: the processes cannot share the shards evenly.
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
        super().__init__(task, parameters, device, scaler)
        index, count = processes.rank[:2]
        require_shards(shards, count)
        self.seed, self.shards, self.processes = seed, shards, processes
        self.rank = Rank(index, count, shards // count)
        self.state = ShardState(task)
        self._is_checked = False

    def total(self, weight: int) -> int:
        """The sum over all processes."""
        return self.processes.total(weight)

    def any(self, flag: bool) -> bool:
        """Whether a flag is set in any process."""
        return self.processes.any(flag)

    def agreed(self, value: T) -> T:
        """The value of rank 0."""
        return self.processes.broadcast(value)

    def reduce(self, sums: dict[str, float]) -> dict[str, float]:
        """The sums over all processes, in the order of the ranks."""
        found: dict[str, float] = {}
        for own in self.processes.gather(sums):
            for name, value in own.items():
                found[name] = found.get(name, 0.0) + value
        return found

    def own_shards(self, batches: Sequence[Any]) -> list[tuple[int, Sequence[Any]]]:
        """The shards of this process: the number of each in the step, and its batches."""
        each = self.rank.each
        first = self.rank.index * each
        return [(first + place, batches[place::each]) for place in range(each)]

    def clip(self, limit: float) -> Tensor:
        """Clip the gradients by the norm of rank 0: other processors may round it differently."""
        gradients = [each.grad for each in self.parameters if each.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients).to(self.device)
        if self.rank.count > 1:
            with self.processes.together():
                dist.broadcast(norm, src=0)
        torch.nn.utils.clip_grads_with_norm_(self.parameters, limit, norm)
        return norm

    def checkpoint(
        self, optimiser: torch.optim.Optimizer
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The tensors of the model and of the optimiser; nothing in processes that do not write."""
        return super().checkpoint(optimiser) if self.rank.index == 0 else ({}, {})

    def require_same_weights(self) -> None:
        """Raise UserError if the processes begin with different weights; compares them once."""
        if self._is_checked or self.rank.count == 1:
            return
        self._is_checked = True
        found = self.processes.gather(_fingerprint(self.parameters))
        for index, other in enumerate(found):
            if other != found[0]:
                raise UserError(
                    f"rank {index} begins with other weights than rank 0; give all processes the "
                    "same recipe and the same run folder (--out) on a shared file system"
                )

    def end_step(self, step: int) -> None:
        """Give PyTorch's generators the same state in all processes."""
        torch.manual_seed(seed_of(self.seed, step, -1, 0))


def _fingerprint(parameters: Sequence[nn.Parameter]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for parameter in parameters:
        values = parameter.detach().contiguous().view(-1).view(torch.uint8)
        digest.update(values.cpu().numpy().tobytes())
    return digest.hexdigest()
