"""Sparsemax: sparsemax(z) = argmin_{p ∈ Δ} ‖p − z‖² = [z − τ(z)]₊, the nearest distribution.

Martins, Astudillo 2016, "From Softmax to Sparsemax", section 2: equation 2 and proposition 1
(τ(z) = (Σ_{j ≤ k(z)} z_(j) − 1) / k(z), with k(z) = max {k : 1 + k·z_(k) > Σ_{j ≤ k} z_(j)}).
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.preparing import below_largest, check_scores, finished


def sparsemax(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Sparsemax over the last dimension of ``scores [.., Q, K]``, over the allowed keys.

    Exact, by sorting; keys more than 1 below the highest score get exactly 0. A row that allows no
    key is all zeros, with zero gradients.

    Args:
        scores: ``[.., Q, K]``.
        allowed: boolean, broadcastable to the scores; true = may attend.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> import torch
        >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """
    check_scores(scores, allowed)
    if not scores.shape[-1]:
        return scores
    # With the largest at 0, τ is in [−1, −1/K]: scores below −1 get no weight.
    z = below_largest(scores, allowed).clamp(min=-1.0)
    support = _support(z.detach())
    # For a given support, τ is a plain mean, and its gradient is exact.
    tau = (z.masked_fill(~support, 0.0).sum(-1, keepdim=True) - 1.0) / support.sum(-1, keepdim=True)
    return finished(F.relu(z - tau), scores, allowed)


def _support(z: Tensor) -> Tensor:
    """Which of ``z [.., K]``, whose largest is 0, get a weight: true for k(z) of them."""
    ordered = z.sort(-1, descending=True).values
    sums = ordered.cumsum(-1)
    k = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    count = (1.0 + k * ordered > sums).sum(-1, keepdim=True)  # True up to k(z), then false.
    count = count.clamp(min=1)  # It is 0 in a row with NaN, whose result is NaN.
    return z > (sums.gather(-1, count - 1) - 1.0) / count


class Sparsemax(Normalizer):
    """:func:`sparsemax` as a normalizer: few keys get weight, the others exactly none.

    Example:
        >>> import torch
        >>> Sparsemax()(torch.tensor([[2.0, 2.0, 0.0]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        name: Literal["sparsemax"] = "sparsemax"

        def build(self, heads: int, query_dim: int) -> "Sparsemax":
            return Sparsemax()

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        return sparsemax(scores, allowed)
