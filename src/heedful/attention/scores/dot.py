"""Dot product: e(q, k) = qᵀk.

Luong, Pham, Manning 2015, "Effective Approaches to Attention-based Neural Machine Translation",
section 3.1, equation 8 ("dot").
"""

from typing import Literal

from torch import Tensor

from heedful.attention.scores.base import Score, ScoreSettings, equal_width, require_same_width


class Dot(Score):
    """Dot product of query and key.

    Raises:
        ValueError: at the call, query and key differ in width.

    Example:
        >>> import torch
        >>> Dot()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
        tensor([[11.,  1.]])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["dot"] = "dot"

        def build(self, query_dim: int, key_dim: int) -> "Dot":
            equal_width(self.name, query_dim, key_dim)
            return Dot()

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        require_same_width(query, key)
        return query @ key.transpose(-2, -1)

    def dot_scale(self, width: int) -> float:
        return 1.0
