"""Models on paper: what a task says about the size of its models."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor, nn


class PaperSize(NamedTuple):
    """A size of the literature."""

    tables: Mapping[str, Any]
    """The recipe's tables."""
    length: int
    """Tokens of a sequence in training."""
    source: str
    tokens: int | None = None
    """Tokens of the published training; None if it is not stated."""


class Sketch(NamedTuple):
    """A model on the device ``meta``, and a training step with it."""

    model: "nn.Module"
    loss: "Callable[[int, int], Tensor]"
    """Sequences of a batch, and tokens of each → the loss."""
    vocabulary: int
    length: int
    """Tokens of a sequence unless one is given."""
    counted: str = "tokens"
    """What the tokens of the second argument are."""
