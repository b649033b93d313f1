"""Softmax off by one: α_i = exp(e_i) / (1 + Σ_j exp(e_j)): a row may attend to (almost) nothing.

The same as a softmax with one more key, whose score is 0 and whose value is 0. Miller 2023,
"Attention Is Off By One".
"""

import torch
from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, Queries
from heedful.attention.normalizers.preparing import check_scores, filled, finished, widened


def softmax_off_by_one(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """``exp(e) / (1 + Σ exp(e))`` over the last dimension of ``scores [.., Q, K]``.

    Does not overflow for large scores. Rows sum to less than 1; a row that allows no key is all
    zeros, with zero gradients.

    Args:
        scores: ``[.., Q, K]``.
        allowed: boolean, broadcastable to the scores; true = may attend.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> softmax_off_by_one(torch.tensor([[0.0, 0.0], [999.0, 0.0]]))
        tensor([[0.3333, 0.3333],
                [1.0000, 0.0000]])
    """
    check_scores(scores, allowed)
    if not scores.shape[-1]:
        return scores
    wide = filled(widened(scores), allowed)
    # S / (1 + S) = sigmoid(log S), for the sum S of the exponentials; the rest is a softmax.
    share = torch.sigmoid(torch.logsumexp(wide, dim=-1, keepdim=True))
    return finished(torch.softmax(wide, dim=-1) * share, scores, allowed)


class SoftmaxOffByOne(Normalizer):
    """:func:`softmax_off_by_one` as a normalizer.

    Example:
        >>> SoftmaxOffByOne()(torch.zeros(1, 3))
        tensor([[0.2500, 0.2500, 0.2500]])
    """

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        return softmax_off_by_one(scores, allowed)
