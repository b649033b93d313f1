"""The contract between the training loop and a task: batches, a loss, a validation."""

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
    """The tensor that is differentiated: a sum over ``weight`` tokens or examples."""
    parts: dict[str, Tensor]
    """Named sums over the same, detached, for the record."""
    weights: Mapping[str, float] = MappingProxyType({})
    """Part → its weight, if it is not ``weight``."""


class Sample(NamedTuple):
    """One validation example, to print."""

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
        """Tokens (or examples) the loss is a sum over."""
        ...

    def to(self, device: torch.device) -> Any:
        """The same batch on a device."""
        ...

    def split(self, count: int, fewest: int = FEWEST) -> Sequence[Any]:
        """At most ``count`` batches of about ``fewest`` tokens or more each; or itself alone."""
        ...


class Task(Protocol):
    """A training task."""

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        ...

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, Any]]:
        """Batches without end from ``position``, each with the position after it.

        With several processes a step takes ``rank.count`` of them, of which ``rank`` gets its own.
        """
        ...

    def loss(self, batch: Any) -> Loss:
        """The loss of a batch, with the model as it is."""
        ...

    def split(self, batch: Any, count: int, fewest: int = FEWEST) -> Sequence[Any]:
        """The batch as at most ``count``, whose losses add up to its own; or itself alone.

        Each has about ``fewest`` tokens at least.

        They may be learnt at once, so a loss of theirs changes nothing in the task or the model.
        """
        ...

    def validate(self) -> Validation:
        """Figures on the validation data; draws no random numbers that training draws."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """The state of the task by name, for checkpoints."""
        ...

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from :meth:`tensors`."""
        ...


class TaskDefaults:
    """Base of tasks that have no state of their own and whose batches can be split."""

    def split(self, batch: Any, count: int, fewest: int = FEWEST) -> Sequence[Any]:
        """What the batch's own ``split`` returns."""
        parts: Sequence[Any] = batch.split(count, fewest)
        return parts

    def tensors(self) -> dict[str, Tensor]:
        """Empty: the task has no state."""
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Do nothing: the task has no state."""
