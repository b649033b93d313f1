"""The scores that recipes can name. Plug-ins add scores with :func:`register_score`."""

from collections.abc import Callable

from heedful.attention.scores.additive import Additive
from heedful.attention.scores.base import Score
from heedful.attention.scores.concat import Concat
from heedful.attention.scores.cosine import Cosine
from heedful.attention.scores.dot import Dot
from heedful.attention.scores.gaussian import Gaussian
from heedful.attention.scores.general import General
from heedful.attention.scores.scaled_dot import ScaledDot
from heedful.attention.scores.soft_capped import SoftCapped
from heedful.basics.named import Named

BuildScore = Callable[[int], Score]
"""Builds a score for queries and keys of this width."""

_builders: Named[BuildScore] = Named(
    "score",
    {
        "scaled-dot": lambda width: ScaledDot(),
        "dot": lambda width: Dot(),
        "general": lambda width: General(width, width),
        "additive": lambda width: Additive(width, width, width),
        "concat": lambda width: Concat(width, width, width),
        "cosine": lambda width: Cosine(),
        "gaussian": lambda width: Gaussian(),
        "soft-capped": lambda width: SoftCapped(),
    },
)


def register_score(name: str, build: BuildScore) -> None:
    """Add a score that recipes can name.

    Args:
        name: the name in recipes.
        build: builds it for the width of a head.

    Raises:
        UserError: the name is already registered.

    Example:
        >>> register_score("of-mine", lambda width: Dot())
        >>> build_score("of-mine", 4)
        Dot()
        >>> del _builders["of-mine"]
    """
    _builders.register(name, build)


def build_score(name: str, width: int) -> Score:
    """Build the score ``name`` for heads of width ``width``.

    Raises:
        ValueError: the score is unknown.

    Example:
        >>> build_score("scaled-dot", 4)
        ScaledDot()
    """
    return _builders[known_score(name)](width)


def known_score(name: str) -> str:
    """Return ``name`` if such a score exists.

    Raises:
        ValueError: it does not exist; the message suggests the closest name.

    Example:
        >>> known_score("cosine")
        'cosine'
    """
    return _builders.known(name)
