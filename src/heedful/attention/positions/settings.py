"""The settings of positions. Recipes name both kinds of positions by one key."""

from typing import ClassVar, NamedTuple

from heedful.attention.positions.added import AddedPositions, NoPositions
from heedful.attention.positions.base import RelativePositions
from heedful.basics.parts import Parts, PartSettings


class HeadSizes(NamedTuple):
    """What positions are built for that act on queries and keys ``[.., heads, L, width]``.

    Example:
        >>> HeadSizes(width=4, heads=2).compared is None
        True
    """

    width: int
    """Width of a head's queries and keys."""
    heads: int
    causal: bool = False
    """Whether queries only attend to keys at their position and before."""
    compared: int | None = None
    """Width of the vectors that the score compares; None if it is ``width``."""
    values: int | None = None
    """Width of a head's values; None if it is ``width``."""


class PositionSettings(PartSettings):
    """Base of the settings of positions; a table of this type is that of the positions it names.

    They act on embeddings ``[B, L, dim]``, or on queries and keys ``[.., heads, L, width]``.

    Positions that are added to embeddings override :meth:`build_added`; those that act within
    self-attention override :meth:`build_relative`.

    Example:
        >>> PositionSettings.model_validate("rotary").build_relative(HeadSizes(4, 2)).dim
        4
    """

    parts: ClassVar[Parts["PositionSettings"]] = Parts("position")
    relative: ClassVar[bool] = False
    """Whether they act within self-attention instead of being added to embeddings."""

    def build_added(self, dim: int, length: int) -> AddedPositions:
        """The positions for embeddings of width ``dim`` and at most ``length`` tokens."""
        return NoPositions()

    def build_relative(self, sizes: HeadSizes) -> RelativePositions | None:
        """The positions for heads of these sizes; None if there are none.

        Raises:
            ValueError: the positions do not support such heads.
        """
        return None
