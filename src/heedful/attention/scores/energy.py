"""Energy: e(q, k) = g vᵀ/‖v‖ tanh(W q + V k + b) + r, an additive score with a learned scale and
offset.

For monotonic attention, whose sigmoid depends on the offset r, unlike a softmax. Raffel et al.
2017, "Online and Linear-Time Attention by Enforcing Monotonic Alignments", section 2.4.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.scores.base import Score, ScoreSettings, require_width
from heedful.basics.limits import MOST_WIDTH
from heedful.kernels.additive import additive_scores


class Energy(Score):
    """The additive score with a normalized v, a learned scale and an offset.

    Parameters: ``query_projection`` (W), ``key_projection`` (V, with the bias b), ``v``, ``scale``
    (g, initially 1/√hidden_dim) and ``offset`` (r).

    Args:
        query_dim: width of the queries.
        key_dim: width of the keys.
        hidden_dim: number of tanh units.
        offset: initial r; negative, so that early in training the attention can reach all keys.

    Raises:
        ValueError: a number is below 1; at the call, the query or key has another width.

    Source: Raffel et al. 2017, section 2.4.

    Example:
        >>> Energy(3, 5, hidden_dim=7)(torch.zeros(2, 3), torch.zeros(4, 5)).shape  # [Q, K]
        torch.Size([2, 4])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["energy"] = "energy"
        hidden_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
        """Number of tanh units; the width of the queries by default."""
        offset: float = Field(-4.0, allow_inf_nan=False)
        """Initial r."""

        def build(self, query_dim: int, key_dim: int) -> "Energy":
            return Energy(query_dim, key_dim, self.hidden_size or query_dim, offset=self.offset)

        def compared(self, width: int) -> int:
            return self.hidden_size or width

    def __init__(
        self, query_dim: int, key_dim: int, hidden_dim: int, *, offset: float = -4.0
    ) -> None:
        super().__init__()
        if min(query_dim, key_dim, hidden_dim) < 1:
            raise ValueError(
                "query_dim, key_dim and hidden_dim must be at least 1, not "
                f"{query_dim}, {key_dim} and {hidden_dim}"
            )
        self.query_dim, self.key_dim = query_dim, key_dim
        self.query_projection = nn.Linear(query_dim, hidden_dim, bias=False)
        self.key_projection = nn.Linear(key_dim, hidden_dim)
        self.v = nn.Parameter(torch.empty(hidden_dim))
        nn.init.uniform_(self.v, -(hidden_dim**-0.5), hidden_dim**-0.5)
        self.scale = nn.Parameter(torch.tensor(hidden_dim**-0.5))
        self.offset = nn.Parameter(torch.tensor(float(offset)))

    def project_query(self, query: Tensor) -> Tensor:
        require_width("query", query, self.query_dim)
        projected: Tensor = self.query_projection(query)
        return projected

    def project_key(self, key: Tensor) -> Tensor:
        require_width("key", key, self.key_dim)
        projected: Tensor = self.key_projection(key)
        return projected

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(self.v).clamp(min=torch.finfo(self.v.dtype).tiny)
        return additive_scores(query, key, self.v * (self.scale / length)) + self.offset
