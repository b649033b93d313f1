"""Plain sum: α_i = p_i / Σ_j p_j, for scores p that are not negative.

The softmax of a dot product is this for p = exp(q·k). Katharopoulos et al. 2020, "Transformers are
RNNs", section 3.2, equation 3 (any non-negative similarity); also used by Graves et al. 2014 and
by fast weights.
"""

from typing import Literal

from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.preparing import check_scores, finished, widened


def plain_sum(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """``p / Σp`` over the last dimension of ``scores [.., Q, K]``, over the allowed keys.

    The scores must not be negative. This is not checked, because a check would need a GPU
    synchronisation and could not be compiled. A negative score counts as zero and gets no gradient.
    A row whose sum is zero is all zeros, with zero gradients.

    Args:
        scores: ``[.., Q, K]``, not negative.
        allowed: boolean, broadcastable to the scores; true = may attend.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> import torch
        >>> plain_sum(torch.tensor([[1.0, 3.0, -9.0], [0.0, 0.0, 0.0]]))
        tensor([[0.2500, 0.7500, 0.0000],
                [0.0000, 0.0000, 0.0000]])
    """
    check_scores(scores, allowed)
    if not scores.shape[-1]:
        return scores
    parts = widened(scores)
    if allowed is not None:
        parts = parts.masked_fill(~allowed, 0.0)
    parts = parts.clamp(min=0.0)
    # Divide by the largest, so that the sum does not overflow. It cancels: no gradient is lost.
    largest = parts.detach().amax(-1, keepdim=True)
    empty = largest == 0
    parts = parts / largest.masked_fill(empty, 1.0)
    total = parts.sum(-1, keepdim=True).masked_fill(empty, 1.0)
    return finished((parts / total).masked_fill(empty, 0.0), scores, allowed)


class PlainSum(Normalizer):
    """:func:`plain_sum` as a normalizer, for non-negative scores.

    Example:
        >>> import torch
        >>> PlainSum()(torch.tensor([[1.0, 1.0, 2.0]]))
        tensor([[0.2500, 0.2500, 0.5000]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        name: Literal["plain-sum"] = "plain-sum"

        def build(self, heads: int, query_dim: int) -> "PlainSum":
            return PlainSum()

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        return plain_sum(scores, allowed)
