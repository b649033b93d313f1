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
    """A model, and a training step with it."""

    build: "Callable[[], nn.Module]"
    """Builds the model on PyTorch's default device, such as ``meta``."""
    loss: "Callable[[Any, int, int], Tensor]"
    """Model, sequences of a batch, and tokens of each → the loss, on that device."""
    vocabulary: int
    length: int
    """Tokens of a sequence unless one is given."""
    counted: str = "tokens"
    """What the tokens of the second argument are."""
