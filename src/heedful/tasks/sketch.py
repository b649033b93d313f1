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
    """A model, and a training step with it.

    A batch has rows, such as sequences. Operations are given for a unit: one of those that the
    length of a row counts, such as a token, or a whole row, such as an image.
    """

    build: "Callable[[], nn.Module]"
    """Builds the model on PyTorch's default device, such as ``meta``."""
    loss: "Callable[[Any, int, int], Tensor]"
    """Model, rows of a batch, and the length of each → the loss, on that device."""
    vocabulary: int
    """Number of symbols; 0 for a model without symbols."""
    length: int | None
    """Of a row unless one is given; None if all rows have one size."""
    counted: str = "tokens"
    """What the length counts, and what else a row has."""
    row: str = "sequence"
    """A row; in the plural, its first word has an s."""
    unit: str = "token"
    """What operations are given for; the plural has an s."""
    of_rows: bool = False
    """Whether the unit is a row."""
    longest: int | None = None
    """The largest length; ``max_length`` of the model if None."""
    rows_of_batch: Callable[[int], int] | None = None
    """Length → rows of a training batch of the recipe; None if a batch has ``batch_tokens``
    units."""

    def units(self, rows: int, length: int) -> int:
        """Units of a batch."""
        return rows if self.of_rows else rows * length

    def described(self, rows: int, length: int) -> str:
        """A batch as text.

        Example:
            >>> Sketch(None, None, 9, 32).described(2, 16)
            '2 sequences of 16 tokens'
        """
        noun, space, rest = self.row.partition(" ")
        named = f"{rows:,} {noun}{'' if rows == 1 else 's'}{space}{rest}"
        return named if self.length is None else f"{named} of {length:,} {self.counted}"
