"""Concat: e(q, k) = vᵀ tanh(W [q; k]).

Luong, Pham, Manning 2015, section 3.1, equation 8 ("concat"). W [q; k] = W_q q + W_k k for the two
halves of W, so the keys' half is computed once, as in the additive score.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.scores.base import Score, ScoreSettings, require_width
from heedful.basics.limits import MOST_WIDTH
from heedful.kernels.additive import additive_scores


class Concat(Score):
    """One matrix ``weight [hidden_dim, query_dim + key_dim]`` over the joined query and key.

    Raises:
        ValueError: at the call, the query or key has another width.

    Example:
        >>> import torch
        >>> Concat(3, 5, hidden_dim=7)(torch.zeros(2, 3), torch.zeros(4, 5)).shape
        torch.Size([2, 4])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["concat"] = "concat"
        hidden_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
        """Number of tanh units; the width of the queries by default."""

        def compared(self, width: int) -> int:
            return self.hidden_size or width

        def build(self, query_dim: int, key_dim: int) -> "Concat":
            return Concat(query_dim, key_dim, self.hidden_size or query_dim)

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.query_dim, self.key_dim = query_dim, key_dim
        self.weight = nn.Parameter(torch.empty(hidden_dim, query_dim + key_dim))
        self.v = nn.Parameter(torch.empty(hidden_dim))
        nn.init.xavier_uniform_(self.weight)
        nn.init.uniform_(self.v, -(hidden_dim**-0.5), hidden_dim**-0.5)

    def project_query(self, query: Tensor) -> Tensor:
        require_width("query", query, self.query_dim)
        return query @ self.weight[:, : self.query_dim].T

    def project_key(self, key: Tensor) -> Tensor:
        require_width("key", key, self.key_dim)
        return key @ self.weight[:, self.query_dim :].T

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_scores(query, key, self.v)

    def tanh_vector(self) -> Tensor:
        return self.v
