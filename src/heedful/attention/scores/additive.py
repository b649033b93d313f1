"""Additive: e(q, k) = vᵀ tanh(W₁ k + W₂ q).

Bahdanau, Cho, Bengio 2015, "Neural Machine Translation by Jointly Learning to Align and
Translate", section 3.1 and appendix A.1.2. The plain formula is
:func:`heedful.kernels.additive.plain_scores`; the same module has the fast kernels.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.scores.base import Score, ScoreSettings, require_width
from heedful.basics.constants import WithConstants
from heedful.basics.limits import MOST_WIDTH
from heedful.kernels.additive import additive_scores


class Additive(WithConstants, Score):
    """One hidden layer of ``hidden_dim`` tanh units over query and key.

    Parameters: ``key_projection`` (W₁), ``query_projection`` (W₂), both without bias, and ``v``.

    Args:
        query_dim: width of the queries.
        key_dim: width of the keys.
        hidden_dim: number of units.
        vector: whether the units are weighted by a learned v; otherwise they are summed.

    Raises:
        ValueError: at the call, the query or key has another width.

    Example:
        >>> import torch
        >>> Additive(3, 5, hidden_dim=7)(torch.zeros(2, 3), torch.zeros(4, 5)).shape
        torch.Size([2, 4])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["additive"] = "additive"
        hidden_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
        """Number of tanh units; the width of the queries by default."""

        def compared(self, width: int) -> int:
            return self.hidden_size or width

        def build(self, query_dim: int, key_dim: int) -> "Additive":
            return Additive(query_dim, key_dim, self.hidden_size or query_dim)

    v: Tensor

    def __init__(
        self, query_dim: int, key_dim: int, hidden_dim: int, *, vector: bool = True
    ) -> None:
        super().__init__()
        self.query_dim, self.key_dim = query_dim, key_dim
        self.key_projection = nn.Linear(key_dim, hidden_dim, bias=False)
        self.query_projection = nn.Linear(query_dim, hidden_dim, bias=False)
        if vector:
            self.v = nn.Parameter(torch.empty(hidden_dim))
            nn.init.uniform_(self.v, -(hidden_dim**-0.5), hidden_dim**-0.5)
        else:
            self.register_constants()

    def constants(self) -> dict[str, Tensor]:
        return {"v": torch.ones(self.key_projection.out_features)}

    def project_query(self, query: Tensor) -> Tensor:
        require_width("query", query, self.query_dim)
        projected: Tensor = self.query_projection(query)
        return projected

    def project_key(self, key: Tensor) -> Tensor:
        require_width("key", key, self.key_dim)
        projected: Tensor = self.key_projection(key)
        return projected

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_scores(query, key, self.v)

    def tanh_vector(self) -> Tensor:
        return self.v
