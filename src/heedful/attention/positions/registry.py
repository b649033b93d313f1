"""The positions that recipes can name.

Plug-ins add positions with :func:`register_position` if they are added to the embeddings, and with
:func:`register_relative_position` if they act within the attention.
"""

from collections.abc import Callable

from torch import nn

from heedful.attention.positions.added import AddedPositions, NoPositions
from heedful.attention.positions.base import RelativePositions
from heedful.attention.positions.learned import Learned
from heedful.attention.positions.rotary import Rotary
from heedful.attention.positions.sinusoidal import Sinusoidal
from heedful.attention.positions.transformer_xl import TransformerXL
from heedful.basics.named import Named

BuildPosition = Callable[[int, int], AddedPositions]
"""Builds positions from the embeddings' width and the maximum sequence length."""
BuildRelative = Callable[[int, int], RelativePositions]
"""Builds positions from the width and the number of heads."""

_added: Named[BuildPosition] = Named(
    "position", {"sinusoidal": lambda dim, length: Sinusoidal(dim), "learned": Learned}
)
_relative: Named[BuildRelative] = Named(
    "position", {"rotary": lambda width, heads: Rotary(width), "transformer-xl": TransformerXL}
)


def register_position(name: str, build: BuildPosition) -> None:
    """Add positions that recipes can name and that are added to the embeddings.

    Args:
        name: the name in recipes.
        build: builds them from the embeddings' width and the maximum sequence length.

    Raises:
        UserError: the name is already registered.

    Example:
        >>> register_position("of-mine", lambda dim, length: Learned(dim, length))
        >>> known_position("of-mine")
        'of-mine'
        >>> del _added["of-mine"]
    """
    _all().register(name, build)
    _added.register(name, build)


def register_relative_position(name: str, build: BuildRelative) -> None:
    """Add positions that recipes can name and that act within self-attention.

    Args:
        name: the name in recipes.
        build: builds them from the width and the number of heads.

    Raises:
        UserError: the name is already registered.

    Example:
        >>> register_relative_position("of-mine", lambda width, heads: Rotary(width))
        >>> known_position("of-mine")
        'of-mine'
        >>> del _relative["of-mine"]
    """
    _all().register(name, build)
    _relative.register(name, build)


def build_position(name: str, dim: int, length: int) -> AddedPositions:
    """The positions added to embeddings of width ``dim``; none if ``name`` is relative.

    Raises:
        ValueError: the positions do not exist.
    """
    if known_position(name) in _relative:
        return NoPositions()
    return _added[name](dim, length)


def build_relative_position(name: str, width: int, heads: int) -> RelativePositions | None:
    """The positions within self-attention; None if they are added to the embeddings.

    Raises:
        ValueError: the positions do not exist, or do not support heads of this width.
    """
    return _relative[name](width, heads) if known_position(name) in _relative else None


def known_position(name: str) -> str:
    """Return ``name`` if such positions exist.

    Raises:
        ValueError: they do not exist; the message suggests the closest name.

    Example:
        >>> known_position("sinusoidal")
        'sinusoidal'
    """
    return _all().known(name)


def _all() -> Named[Callable[[int, int], nn.Module]]:
    return Named("position", {**_added, **_relative})
