"""The scores that recipes can name. Plug-ins add scores with :func:`register_score`."""

from collections.abc import Callable
from typing import Any

from heedful.attention.scores.additive import Additive
from heedful.attention.scores.base import Score, ScoreSettings, equal_width
from heedful.attention.scores.concat import Concat
from heedful.attention.scores.cosine import Cosine
from heedful.attention.scores.coverage import Coverage
from heedful.attention.scores.dot import Dot
from heedful.attention.scores.energy import Energy
from heedful.attention.scores.exp_dot import ExpDot
from heedful.attention.scores.gaussian import Gaussian
from heedful.attention.scores.general import General
from heedful.attention.scores.location import Location
from heedful.attention.scores.location_aware import LocationAware
from heedful.attention.scores.scaled_dot import ScaledDot
from heedful.attention.scores.soft_capped import SoftCapped
from heedful.attention.scores.trilinear import Trilinear

BuildScore = Callable[[int], Score]
"""Builds a score for queries and keys of this width."""

_builders = ScoreSettings.parts


class _OfWidth(ScoreSettings):
    """The settings of a score that a function builds for vectors of equal width."""

    def build(self, query_dim: int, key_dim: int) -> Score:
        function: BuildScore = type(self).function
        return function(equal_width(self.name, query_dim, key_dim))


def register_score(name: str, build: BuildScore | type[ScoreSettings]) -> None:
    """Add a score that recipes can name.

    Args:
        name: the name in recipes.
        build: builds it for the width of queries and keys; or its settings, a subclass of
            :class:`ScoreSettings`.

    Raises:
        UserError: the name is already registered.

    Example:
        >>> register_score("of-mine", lambda width: Dot())
        >>> build_score("of-mine", 4)
        Dot()
        >>> del _builders["of-mine"]
    """
    _builders.add(name, build, _OfWidth)


def build_score(settings: Any, query_dim: int, key_dim: int | None = None) -> Score:
    """Build a score.

    Args:
        settings: its name, or a table with its name and settings.
        query_dim: width of the queries.
        key_dim: width of the keys; default ``query_dim``.

    Raises:
        ValueError: the score is unknown, has no such setting, or does not compare vectors of these
            widths.

    Example:
        >>> build_score({"name": "additive", "hidden_size": 3}, 4).v.shape
        torch.Size([3])
    """
    chosen = ScoreSettings.model_validate(settings)
    return chosen.build(query_dim, query_dim if key_dim is None else key_dim)


for _kind in (
    ScaledDot.Settings,
    Dot.Settings,
    General.Settings,
    Additive.Settings,
    Concat.Settings,
    Cosine.Settings,
    Gaussian.Settings,
    Location.Settings,
    ExpDot.Settings,
    Energy.Settings,
    LocationAware.Settings,
    Coverage.Settings,
    SoftCapped.Settings,
    Trilinear.Settings,
):
    _builders.add(str(_kind.model_fields["name"].default), _kind, _OfWidth)
