"""Smoothing: α_i = σ(e_i) / Σ_j σ(e_j): no key gets much more weight than the next best.

The logistic sigmoid σ is bounded, unlike the exponential of the softmax, so that keys with large
scores share the weight. Chorowski et al. 2015, "Attention-Based Models for Speech Recognition",
section 2.3.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.preparing import check_scores, filled, finished, widened


def smoothed(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """``σ(e) / Σσ(e)`` over the last dimension of ``scores [.., Q, K]``, over the allowed keys.

    Unlike those of a softmax, the weights change if a constant is added to all scores: they are
    equal if all scores are large, and those of a softmax if all are far below 0. A row that allows
    no key is all zeros, with zero gradients.

    Args:
        scores: ``[.., Q, K]``.
        allowed: boolean, broadcastable to the scores; true = may attend.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> import torch
        >>> smoothed(torch.tensor([[9.0, 99.0, 0.0], [-99.0, -99.0, -999.0]]))
        tensor([[0.4000, 0.4000, 0.2000],
                [0.5000, 0.5000, 0.0000]])
    """
    check_scores(scores, allowed)
    # The softmax of log σ(e): the sum of sigmoids far below 0 would be zero.
    logarithms = F.logsigmoid(filled(widened(scores), allowed))
    return finished(torch.softmax(logarithms, dim=-1), scores, allowed)


class Smoothed(Normalizer):
    """:func:`smoothed` as a normalizer.

    Example:
        >>> import torch
        >>> Smoothed()(torch.tensor([[0.0, 99.0]]))
        tensor([[0.3333, 0.6667]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        name: Literal["smoothed"] = "smoothed"

        def build(self, heads: int, query_dim: int) -> "Smoothed":
            return Smoothed()

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        return smoothed(scores, allowed)
