"""Scaled dot product: e(q, k) = qᵀk / √d.

Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, equation 1. The dot product of two
standard normal vectors of width d has variance d; the factor brings it back to one.
"""

import math
from typing import Literal

from torch import Tensor

from heedful.attention.scores.base import Score, ScoreSettings, equal_width, require_same_width


class ScaledDot(Score):
    """Dot product divided by the square root of the width.

    Raises:
        ValueError: at the call, query and key differ in width.

    Example:
        >>> import torch
        >>> ScaledDot()(torch.ones(1, 4), torch.ones(2, 4))
        tensor([[2., 2.]])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["scaled-dot"] = "scaled-dot"

        def build(self, query_dim: int, key_dim: int) -> "ScaledDot":
            equal_width(self.name, query_dim, key_dim)
            return ScaledDot()

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        require_same_width(query, key)
        return (query * self.dot_scale(query.shape[-1])) @ key.transpose(-2, -1)

    def dot_scale(self, width: int) -> float:
        return 1.0 / math.sqrt(width)
