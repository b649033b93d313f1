"""The normalizers that recipes can name. Plug-ins add normalizers with
:func:`register_normalizer`."""

from collections.abc import Callable
from typing import Any

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings
from heedful.attention.normalizers.entmax import Entmax
from heedful.attention.normalizers.entmax15 import Entmax15
from heedful.attention.normalizers.gumbel import GumbelStraightThrough
from heedful.attention.normalizers.hard import Hard
from heedful.attention.normalizers.local_monotonic import LocalMonotonic
from heedful.attention.normalizers.local_predictive import LocalPredictive
from heedful.attention.normalizers.monotonic import Monotonic
from heedful.attention.normalizers.plain_sum import PlainSum
from heedful.attention.normalizers.sampled_hard import SampledHard
from heedful.attention.normalizers.sink_softmax import SinkSoftmax
from heedful.attention.normalizers.smoothed import Smoothed
from heedful.attention.normalizers.softmax import Softmax
from heedful.attention.normalizers.softmax_off_by_one import SoftmaxOffByOne
from heedful.attention.normalizers.sparsemax import Sparsemax
from heedful.attention.normalizers.windowed import Windowed

BuildNormalizer = Callable[[int], Normalizer]
"""Builds a normalizer for the scores of this number of heads."""

_builders = NormalizerSettings.parts


class _OfHeads(NormalizerSettings):
    """The settings of a normalizer that a function builds for a number of heads."""

    def build(self, heads: int, query_dim: int) -> Normalizer:
        function: BuildNormalizer = type(self).function
        return function(heads)


def register_normalizer(name: str, build: BuildNormalizer | type[NormalizerSettings]) -> None:
    """Add a normalizer that recipes can name.

    Args:
        name: the name in recipes.
        build: builds it for a number of heads; or its settings, a subclass of
            :class:`NormalizerSettings`.

    Raises:
        UserError: the name is already registered.

    Example:
        >>> register_normalizer("of-mine", lambda heads: Softmax())
        >>> build_normalizer("of-mine", 4)
        Softmax()
        >>> del _builders["of-mine"]
    """
    _builders.add(name, build, _OfHeads)


def build_normalizer(settings: Any, heads: int = 1, query_dim: int = 1) -> Normalizer:
    """Build a normalizer.

    Args:
        settings: its name, or a table with its name and settings.
        heads: number of heads of the scores.
        query_dim: width of the queries; only a normalizer that predicts from them needs it.

    Raises:
        ValueError: the normalizer is unknown or has no such setting.

    Example:
        >>> build_normalizer({"name": "softmax", "temperature": 2.0}).temperature
        2.0
    """
    return NormalizerSettings.model_validate(settings).build(heads, query_dim)


for _kind in (
    Softmax.Settings,
    SoftmaxOffByOne.Settings,
    SinkSoftmax.Settings,
    Smoothed.Settings,
    Sparsemax.Settings,
    Entmax15.Settings,
    Entmax.Settings,
    PlainSum.Settings,
    Hard.Settings,
    SampledHard.Settings,
    GumbelStraightThrough.Settings,
    LocalMonotonic.Settings,
    LocalPredictive.Settings,
    Monotonic.Settings,
    Windowed.Settings,
):
    _builders.add(str(_kind.model_fields["name"].default), _kind, _OfHeads)
