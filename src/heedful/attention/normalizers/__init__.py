"""Normalizers: scores to weights. One mechanism a file."""

from heedful.attention.normalizers.base import Normalizer, Queries
from heedful.attention.normalizers.softmax import Softmax

__all__ = ["Normalizer", "Queries", "Softmax"]
