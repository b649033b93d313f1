"""Trilinear: e(q, k) = wᵀ [q; k; q ∘ k].

Seo, Kembhavi, Farhadi, Hajishirzi 2017, "Bidirectional Attention Flow for Machine Comprehension",
section 2, equation 1. For the three parts of w, the score is a dot product of wider vectors:
w₁ᵀq + w₂ᵀk + (w₃ ∘ q)ᵀk = [w₃ ∘ q; w₁ᵀq; 1]ᵀ [k; 1; w₂ᵀk]. They are wider than the values, for
which there is no fused kernel.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from heedful.attention.scores.base import Score, ScoreSettings, equal_width, require_width


class Trilinear(Score):
    """A vector over the query, the key and their product; ``weight [3, width]`` has its parts.

    Raises:
        ValueError: at the call, the query or key has another width.

    Example:
        >>> import torch
        >>> Trilinear(3)(torch.zeros(2, 3), torch.zeros(4, 3)).shape
        torch.Size([2, 4])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["trilinear"] = "trilinear"

        def compared(self, width: int) -> int:
            return width + 2

        def build(self, query_dim: int, key_dim: int) -> "Trilinear":
            return Trilinear(equal_width(self.name, query_dim, key_dim))

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.empty(3, width))
        nn.init.uniform_(self.weight, -((3 * width) ** -0.5), (3 * width) ** -0.5)

    def project_query(self, query: Tensor) -> Tensor:
        require_width("query", query, self.width)
        alone = query @ self.weight[0].unsqueeze(-1)
        return torch.cat([query * self.weight[2], alone, torch.ones_like(alone)], -1)

    def project_key(self, key: Tensor) -> Tensor:
        require_width("key", key, self.width)
        alone = key @ self.weight[1].unsqueeze(-1)
        return torch.cat([key, torch.ones_like(alone), alone], -1)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(-2, -1)
