"""Inference: text in, result out, given models and tokenisers."""

from heedful.inference.alignment import AlignmentRule
from heedful.inference.trace import AttentionMap, Trace
from heedful.inference.translation import Translation
from heedful.inference.translator import Translator
from heedful.inference.word_alignment import WordAlignment

__all__ = ["AlignmentRule", "AttentionMap", "Trace", "Translation", "Translator", "WordAlignment"]
