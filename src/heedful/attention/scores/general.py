"""General, or bilinear: e(q, k) = qᵀ W k.

Luong, Pham, Manning 2015, section 3.1, equation 8 ("general").
"""

from typing import Literal

import torch
from torch import Tensor, nn

from heedful.attention.scores.base import Score, ScoreSettings, require_width


class General(Score):
    """Bilinear form with one matrix ``weight [query_dim, key_dim]``.

    The matrix is applied to the keys, which are read at every step but projected once.

    Raises:
        ValueError: at the call, the query or key has another width.

    Example:
        >>> import torch
        >>> General(3, 5)(torch.zeros(2, 3), torch.zeros(4, 5)).shape
        torch.Size([2, 4])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["general"] = "general"

        def build(self, query_dim: int, key_dim: int) -> "General":
            return General(query_dim, key_dim)

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.query_dim, self.key_dim = query_dim, key_dim
        self.weight = nn.Parameter(torch.empty(query_dim, key_dim))
        nn.init.xavier_uniform_(self.weight)

    def project_query(self, query: Tensor) -> Tensor:
        require_width("query", query, self.query_dim)
        return query

    def project_key(self, key: Tensor) -> Tensor:
        require_width("key", key, self.key_dim)
        return key @ self.weight.T

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(-2, -1)

    def dot_scale(self, width: int) -> float:
        return 1.0
