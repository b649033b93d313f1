"""Scores by name, as recipes name them. A plug-in adds its own with :func:`register_score`."""

from collections.abc import Callable

from heedful.attention.scores.additive import Additive
from heedful.attention.scores.base import Score
from heedful.attention.scores.concat import Concat
from heedful.attention.scores.cosine import Cosine
from heedful.attention.scores.dot import Dot
from heedful.attention.scores.gaussian import Gaussian
from heedful.attention.scores.general import General
from heedful.attention.scores.scaled_dot import ScaledDot
from heedful.basics.named import Named

BuildScore = Callable[[int], Score]
"""Makes a score of queries and keys with as many numbers each."""

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
    },
)


def register_score(name: str, build: BuildScore) -> None:
    """Add a score that recipes can name.

    Args:
        name: its name in a recipe.
        build: makes it, given the width of a head.

    Raises:
        UserError: another score has the name.

    Example:
        >>> register_score("of-mine", lambda width: Dot())
        >>> build_score("of-mine", 4)
        Dot()
        >>> del _builders["of-mine"]
    """
    _builders.register(name, build)


def build_score(name: str, width: int) -> Score:
    """The score of a name, for heads of ``width`` numbers.

    Raises:
        ValueError: the score is unknown.

    Example:
        >>> build_score("scaled-dot", 4)
        ScaledDot()
    """
    return _builders[known_score(name)](width)


def known_score(name: str) -> str:
    """The name, if there is such a score.

    Raises:
        ValueError: there is none; the message names the nearest.

    Example:
        >>> known_score("cosine")
        'cosine'
    """
    return _builders.known(name)
