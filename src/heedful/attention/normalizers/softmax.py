"""Softmax: α_i = exp(e_i) / Σ_j exp(e_j)."""

import torch
from torch import Tensor

from heedful.attention.normalizers.base import Normalizer


def masked_softmax(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension of ``scores [.., Q, K]``, over the allowed keys alone.

    A row that allows no key is all zeros, with zero gradients.

    Example:
        >>> masked_softmax(torch.zeros(2, 2), torch.tensor([[True, False], [False, False]]))
        tensor([[1., 0.],
                [0., 0.]])
    """
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    # The lowest finite number, not −∞: a row of −∞ would be NaN, also in its gradient.
    lowest = torch.finfo(scores.dtype).min
    weights = torch.softmax(scores.masked_fill(~allowed, lowest), dim=-1)
    return weights.masked_fill(~allowed, 0.0)


class Softmax(Normalizer):
    """Softmax over the keys; a query that may attend to nothing gets zeros.

    Example:
        >>> Softmax()(torch.zeros(1, 4))
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    is_softmax = True

    def forward(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        return masked_softmax(scores, allowed)
