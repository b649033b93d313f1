"""Normalized queries and keys, so that scores cannot grow without bound.

    rms     q̂ = g ⊙ q / √(mean(q²) + ε)
    layer   q̂ = g ⊙ (q − mean(q)) / √(var(q) + ε)
    l2      q̂ = g q / ‖q‖,   k̂ = k / ‖k‖

and keys likewise, over the width of a head, after the projections and before rotary positions. RMS
and layer norm have a factor for each component, g, for queries and one for keys; the softmax of
q̂ · k̂ / √d is unchanged. L2 has one learned factor g, which replaces 1/√d.

L2: Henry et al. 2020, "Query-Key Normalization for Transformers", section 3. Layer norm without
bias: Dehghani et al. 2023, "Scaling Vision Transformers to 22 Billion Parameters", section 2. RMS
norm: Zhang, Sennrich 2019, "Root Mean Square Layer Normalization", as in Qwen 3 and Gemma 3.
"""

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention.scores.base import Score, require_width
from heedful.attention.scores.cosine import Cosine, directions
from heedful.attention.scores.scaled_dot import ScaledDot
from heedful.attention.scores.soft_capped import SoftCapped

Kind = Literal["rms", "layer", "l2"]


class QueryKeyNorm(nn.Module):
    """Normalizes the queries and keys of each head.

    Parameters: ``query_weight`` and ``key_weight``, ``[head_dim]`` and initially 1, shared by all
    heads; of L2, the scalar ``factor`` instead.

    Args:
        head_dim: width of a head.
        kind: the norm.
        factor: initial g of L2; Henry et al. suggest log₂(L² − L) for training texts of L tokens.
        epsilon: ε, which keeps the norm of a zero vector finite; not for L2, where zero stays zero.

    Raises:
        ValueError: ``head_dim`` is below 1, ``kind`` is unknown, or ``factor`` is not above 0 or
            not finite; at the call, a vector has another width.

    Source: Henry et al. 2020, section 3; Dehghani et al. 2023, section 2.

    Example:
        >>> norm = QueryKeyNorm(2, "l2", factor=10.0)
        >>> norm.query(torch.tensor([[3.0, 4.0]])).detach()  # [.., L, D]
        tensor([[6., 8.]])
        >>> norm.key(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """

    def __init__(
        self, head_dim: int, kind: Kind = "rms", *, factor: float = 10.0, epsilon: float = 1e-6
    ) -> None:
        super().__init__()
        if head_dim < 1:
            raise ValueError(f"head_dim must be at least 1, not {head_dim}")
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, not '{kind}'")
        if not 0 < factor < math.inf:
            raise ValueError(f"factor must be above 0 and finite, not {factor}")
        self.head_dim, self.kind, self.epsilon = head_dim, kind, epsilon
        if kind == "l2":
            self.factor = nn.Parameter(torch.tensor(factor))
        else:
            self.query_weight = nn.Parameter(torch.ones(head_dim))
            self.key_weight = nn.Parameter(torch.ones(head_dim))

    def query(self, query: Tensor) -> Tensor:
        """The normalized queries ``[.., Q, D]``."""
        require_width("query", query, self.head_dim)
        if self.kind == "l2":
            return (directions(query) * self.factor).to(query.dtype)
        return self._scaled(query, self.query_weight)

    def key(self, key: Tensor) -> Tensor:
        """The normalized keys ``[.., K, D]``."""
        require_width("key", key, self.head_dim)
        return directions(key) if self.kind == "l2" else self._scaled(key, self.key_weight)

    def _scaled(self, vectors: Tensor, weight: Tensor) -> Tensor:
        wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        shape = (self.head_dim,)
        if self.kind == "rms":
            normed = F.rms_norm(wide, shape, eps=self.epsilon)
        else:
            normed = F.layer_norm(wide, shape, eps=self.epsilon)
        return (normed * weight).to(vectors.dtype)

    def check(self, score: Score, head_dim: int) -> None:
        """Raise ValueError unless this norm suits the score and the width of the heads."""
        if self.head_dim != head_dim:
            raise ValueError(
                f"query_key_norm is for heads of width {self.head_dim}, not {head_dim}"
            )
        if isinstance(score, SoftCapped):
            score = score.score
        if self.kind == "l2" and isinstance(score, Cosine):
            raise ValueError(
                "the cosine score normalizes queries and keys itself: omit the L2 norm"
            )
        if self.kind == "l2" and isinstance(score, ScaledDot):
            raise ValueError("the factor of an L2 norm replaces 1/√d: use it with score=Dot()")

    def extra_repr(self) -> str:
        return f"{self.head_dim}, '{self.kind}'"
