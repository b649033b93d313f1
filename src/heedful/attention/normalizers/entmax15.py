"""1.5-entmax: p = [z/2 − τ]₊², with τ such that Σp = 1; between softmax and sparsemax.

Peters, Niculae, Martins 2019, "Sparse Sequence-to-Sequence Models", section 3 (α-entmax for
α = 1.5) and algorithm 2 (exact, by sorting).
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.preparing import below_largest, check_scores, finished


def entmax15(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """1.5-entmax over the last dimension of ``scores [.., Q, K]``, over the allowed keys.

    Exact, by sorting; keys more than 2 below the highest score get exactly 0. A row that allows no
    key is all zeros, with zero gradients.

    Args:
        scores: ``[.., Q, K]``.
        allowed: boolean, broadcastable to the scores; true = may attend.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> import torch
        >>> entmax15(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6740, 0.3260, 0.0000])
    """
    check_scores(scores, allowed)
    if not scores.shape[-1]:
        return scores
    # With the largest at 0, τ is at least −1: scores below −1 get no weight.
    z = (below_largest(scores, allowed) / 2).clamp(min=-1.0)
    support = _support(z.detach())
    # For a given support, τ solves Σ_S (z − τ)² = 1, and its gradient is exact. The variance
    # is taken around the mean, which loses no digits if many keys share the weight.
    count = support.sum(-1, keepdim=True)
    mean = z.masked_fill(~support, 0.0).sum(-1, keepdim=True) / count
    spread = (z - mean).masked_fill(~support, 0.0).square().sum(-1, keepdim=True)
    # It is below 1 by at least 1/count, except for rounding; the root of 0 has no gradient.
    left = (1.0 - spread).clamp(min=torch.finfo(z.dtype).eps)
    tau = mean - (left / count).sqrt()
    return finished(F.relu(z - tau).square(), scores, allowed)


def _support(z: Tensor) -> Tensor:
    """Which of ``z [.., K]`` get a weight; the largest is 0 and none is below −1."""
    ordered = z.sort(-1, descending=True).values
    k = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    mean = ordered.cumsum(-1) / k
    spread = ordered.square().cumsum(-1) - k * mean.square()
    # If the first k vary too much to be a support, the root is not real; 0 allows the comparison.
    tau = mean - ((1.0 - spread) / k).clamp(min=0.0).sqrt()
    count = (tau < ordered).sum(-1, keepdim=True).clamp(min=1)
    return z > tau.gather(-1, count - 1)


class Entmax15(Normalizer):
    """:func:`entmax15` as a normalizer: sparse, but smooth where a key enters the support.

    Example:
        >>> import torch
        >>> Entmax15()(torch.tensor([[3.0, 3.0, 0.0]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        name: Literal["entmax15"] = "entmax15"

        def build(self, heads: int, query_dim: int) -> "Entmax15":
            return Entmax15()

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        return entmax15(scores, allowed)
