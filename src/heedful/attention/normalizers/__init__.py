"""Normalizers: scores to weights. One mechanism per file."""

from heedful.attention.normalizers.base import Draw, Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.entmax import Entmax, entmax_bisect
from heedful.attention.normalizers.entmax15 import Entmax15, entmax15
from heedful.attention.normalizers.gumbel import GumbelStraightThrough
from heedful.attention.normalizers.hard import Hard
from heedful.attention.normalizers.local_monotonic import LocalMonotonic
from heedful.attention.normalizers.local_predictive import LocalPredictive
from heedful.attention.normalizers.monotonic import (
    Monotonic,
    expected_alignment,
    hard_alignment,
    linear_recurrence,
)
from heedful.attention.normalizers.plain_sum import PlainSum
from heedful.attention.normalizers.recurrent import RecurrentNormalizer
from heedful.attention.normalizers.registry import (
    build_normalizer,
    register_normalizer,
)
from heedful.attention.normalizers.sampled_hard import SampledHard
from heedful.attention.normalizers.sink_softmax import SinkSoftmax, sink_softmax
from heedful.attention.normalizers.smoothed import Smoothed
from heedful.attention.normalizers.softmax import Softmax
from heedful.attention.normalizers.softmax_off_by_one import SoftmaxOffByOne
from heedful.attention.normalizers.sparsemax import Sparsemax, sparsemax
from heedful.attention.normalizers.windowed import Windowed

__all__ = [
    "Draw",
    "Entmax",
    "Entmax15",
    "GumbelStraightThrough",
    "Hard",
    "LocalMonotonic",
    "LocalPredictive",
    "Monotonic",
    "Normalizer",
    "NormalizerSettings",
    "PlainSum",
    "Queries",
    "RecurrentNormalizer",
    "SampledHard",
    "SinkSoftmax",
    "Smoothed",
    "Softmax",
    "SoftmaxOffByOne",
    "Sparsemax",
    "Windowed",
    "build_normalizer",
    "entmax15",
    "entmax_bisect",
    "expected_alignment",
    "hard_alignment",
    "linear_recurrence",
    "register_normalizer",
    "sink_softmax",
    "sparsemax",
]
