"""The positions that recipes can name.

Plug-ins add positions with :func:`register_position` if they are added to the embeddings, and with
:func:`register_relative_position` if they act within the attention.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

from heedful.attention.positions.added import AddedPositions
from heedful.attention.positions.alibi import ALiBi
from heedful.attention.positions.base import RelativePositions
from heedful.attention.positions.grid_rotary import GridRotary
from heedful.attention.positions.learned import Learned
from heedful.attention.positions.quadratic import Quadratic
from heedful.attention.positions.rotary import Rotary
from heedful.attention.positions.settings import HeadSizes, PositionSettings
from heedful.attention.positions.shaw import Shaw
from heedful.attention.positions.sinusoidal import Sinusoidal
from heedful.attention.positions.t5 import T5Buckets
from heedful.attention.positions.transformer_xl import TransformerXL

BuildPosition = Callable[[int, int], AddedPositions]
"""Builds positions from the embeddings' width and the maximum sequence length."""
BuildRelative = Callable[[int, int], RelativePositions]
"""Builds positions from the width and the number of heads."""

_builders = PositionSettings.parts


class NoneSettings(PositionSettings):
    """No positions: the order of tokens is known from the mask only, if at all."""

    name: Literal["none"] = "none"


class _Added(PositionSettings):
    """The settings of positions that a function builds for embeddings."""

    def build_added(self, dim: int, length: int) -> AddedPositions:
        function: BuildPosition = type(self).function
        return function(dim, length)


class _Relative(PositionSettings):
    """The settings of positions that a function builds for heads."""

    relative: ClassVar[bool] = True

    def build_relative(self, sizes: HeadSizes) -> RelativePositions:
        function: BuildRelative = type(self).function
        return function(sizes.width, sizes.heads)


def register_position(name: str, build: BuildPosition | type[PositionSettings]) -> None:
    """Add positions that recipes can name and that are added to the embeddings.

    Args:
        name: the name in recipes.
        build: builds them from the embeddings' width and the maximum sequence length; or their
            settings, a subclass of :class:`PositionSettings`.

    Raises:
        UserError: the name is already registered.

    Example:
        >>> register_position("of-mine", lambda dim, length: Learned(dim, length))
        >>> PositionSettings.model_validate("of-mine").build_added(4, 8)
        Learned(
          (table): Embedding(8, 4)
        )
        >>> del _builders["of-mine"]
    """
    _builders.add(name, build, _Added)


def register_relative_position(name: str, build: BuildRelative | type[PositionSettings]) -> None:
    """Add positions that recipes can name and that act within self-attention.

    Args:
        name: the name in recipes.
        build: builds them from the width and the number of heads; or their settings, a subclass of
            :class:`PositionSettings`.

    Raises:
        UserError: the name is already registered.

    Example:
        >>> register_relative_position("of-mine", lambda width, heads: Rotary(width))
        >>> PositionSettings.model_validate("of-mine").relative
        True
        >>> del _builders["of-mine"]
    """
    _builders.add(name, build, _Relative)


for _kind in (
    Sinusoidal.Settings,
    Learned.Settings,
    Rotary.Settings,
    GridRotary.Settings,
    Quadratic.Settings,
    ALiBi.Settings,
    T5Buckets.Settings,
    Shaw.Settings,
    TransformerXL.Settings,
    NoneSettings,
):
    _builders.add(str(_kind.model_fields["name"].default), _kind, _Added)
