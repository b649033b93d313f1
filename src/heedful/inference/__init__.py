"""Inference: predictors, which turn texts into results with a model and a vocabulary."""

from heedful.inference.alignment import AlignmentRule
from heedful.inference.axes import Axis
from heedful.inference.media import Media
from heedful.inference.trace import AttentionMap, Trace, make_trace
from heedful.inference.translation import Translation
from heedful.inference.translator import Translator
from heedful.inference.word_alignment import WordAlignment

__all__ = [
    "AlignmentRule",
    "AttentionMap",
    "Axis",
    "Media",
    "Trace",
    "Translation",
    "Translator",
    "WordAlignment",
    "make_trace",
]
