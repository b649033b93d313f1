"""The contract between the training loop and a task: batches, loss and validation."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from heedful.data.batching import FEWEST
from heedful.data.positions import SINGLE, Position, Rank


class Loss(NamedTuple):
    """The loss of one batch."""

    total: Tensor
    """The tensor to differentiate: a sum over ``weight`` tokens or examples."""
    parts: dict[str, Tensor]
    """Named sums over the same tokens or examples, detached, for the training record."""
    weights: Mapping[str, float] = MappingProxyType({})
    """Part → its weight, if that is not ``weight``."""


class Sample(NamedTuple):
    """One validation example to print."""

    source: str
    output: str
    reference: str


class Validation(NamedTuple):
    """The result of a validation."""

    figures: dict[str, float]
    samples: list[Sample]


class Batch(Protocol):
    """A batch of training examples."""

    @property
    def weight(self) -> int:
        """Number of tokens (or examples) that the loss is summed over."""
        ...

    def to(self, device: torch.device) -> Any:
        """The same batch on a device."""
        ...

    def split(self, count: int, fewest: int = FEWEST) -> Sequence[Any]:
        """At most ``count`` batches of about ``fewest`` tokens or more each; or the batch alone."""
        ...


class Task(Protocol):
    """A training task."""

    @property
    def model(self) -> nn.Module:
        """The model to train."""
        ...

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, Any]]:
        """Endless batches from ``position``, each with the position after it.

        Processes share groups of ``rank.count × rank.each`` batches.
        """
        ...

    def loss(self, batch: Any) -> Loss:
        """The loss of a batch, in the model's current mode."""
        ...

    def split(self, batch: Any, count: int, fewest: int = FEWEST) -> Sequence[Any]:
        """The batch as at most ``count`` parts whose losses add up to its own; or the batch alone.

        Each part has about ``fewest`` tokens or more. Parts may be computed at the same time, so
        their losses must not change the task or the model.
        """
        ...

    def validate(self) -> Validation:
        """Figures on the validation data; must not use the random generators of training."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """The state of the task by name, for checkpoints."""
        ...

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from :meth:`tensors`."""
        ...


class TaskDefaults:
    """Base of tasks without state whose batches can be split."""

    def split(self, batch: Any, count: int, fewest: int = FEWEST) -> Sequence[Any]:
        """The result of the batch's own ``split``."""
        parts: Sequence[Any] = batch.split(count, fewest)
        return parts

    def tensors(self) -> dict[str, Tensor]:
        """Empty: the task has no state."""
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Do nothing: the task has no state."""
