"""Positions by name, as recipes name them.

A plug-in adds its own: :func:`register_position` for those that are added to the embeddings,
:func:`register_relative_position` for those that change the attention itself.
"""

from collections.abc import Callable

from torch import nn

from heedful.attention.positions.added import AddedPositions, NoPositions
from heedful.attention.positions.base import RelativePositions
from heedful.attention.positions.learned import Learned
from heedful.attention.positions.rotary import Rotary
from heedful.attention.positions.sinusoidal import Sinusoidal
from heedful.basics.named import Named

BuildPosition = Callable[[int, int], AddedPositions]
"""Makes positions of a width, for sequences of at most a length."""
BuildRelative = Callable[[int, int], RelativePositions]
"""Makes positions for heads of a width, and for a number of heads."""

_added: Named[BuildPosition] = Named(
    "position", {"sinusoidal": lambda dim, length: Sinusoidal(dim), "learned": Learned}
)
_relative: Named[BuildRelative] = Named("position", {"rotary": lambda width, heads: Rotary(width)})


def register_position(name: str, build: BuildPosition) -> None:
    """Add positions that recipes can name, and that are added to the embeddings.

    Args:
        name: their name in a recipe.
        build: makes them, given the width of the embeddings and the longest sequence.

    Raises:
        UserError: other positions have the name.

    Example:
        >>> register_position("of-mine", lambda dim, length: Learned(dim, length))
        >>> known_position("of-mine")
        'of-mine'
        >>> del _added["of-mine"]
    """
    _all().register(name, build)
    _added.register(name, build)


def register_relative_position(name: str, build: BuildRelative) -> None:
    """Add positions that recipes can name, and that self-attention has.

    Args:
        name: their name in a recipe.
        build: makes them, given the width of a head and the number of heads.

    Raises:
        UserError: other positions have the name.

    Example:
        >>> register_relative_position("of-mine", lambda width, heads: Rotary(width))
        >>> known_position("of-mine")
        'of-mine'
        >>> del _relative["of-mine"]
    """
    _all().register(name, build)
    _relative.register(name, build)


def build_position(name: str, dim: int, length: int) -> AddedPositions:
    """What is added to embeddings of width ``dim``: nothing, where positions are relative.

    Raises:
        ValueError: there are no such positions.
    """
    if known_position(name) in _relative:
        return NoPositions()
    return _added[name](dim, length)


def build_relative_position(name: str, width: int, heads: int) -> RelativePositions | None:
    """What self-attention has: None, where positions are added to the embeddings.

    Raises:
        ValueError: there are no such positions, or they do not fit the heads.
    """
    return _relative[name](width, heads) if known_position(name) in _relative else None


def known_position(name: str) -> str:
    """The name, if there are such positions.

    Raises:
        ValueError: there are none; the message names the nearest.

    Example:
        >>> known_position("sinusoidal")
        'sinusoidal'
    """
    return _all().known(name)


def _all() -> Named[Callable[[int, int], nn.Module]]:
    return Named("position", {**_added, **_relative})
