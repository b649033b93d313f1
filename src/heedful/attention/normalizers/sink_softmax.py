"""Softmax with a sink: α_i = exp(e_i) / (exp(s) + Σ_j exp(e_j)), s one learned logit for each head.

The same as a softmax with one more key, whose score is s and whose value is 0. OpenAI 2025,
"gpt-oss-120b & gpt-oss-20b Model Card", section 2.2 (a learned bias in the denominator); the keys
that a model uses as sinks without one: Xiao et al. 2024, "Efficient Streaming Language Models with
Attention Sinks", section 3.1. With s = 0 it is the softmax off by one.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.preparing import check_scores, filled, finished, widened


def sink_softmax(scores: Tensor, sink: Tensor | float, allowed: Tensor | None = None) -> Tensor:
    """``exp(e) / (exp(s) + Σ exp(e))`` over the last dimension of ``scores [.., Q, K]``.

    Does not overflow for large scores. Rows sum to less than 1; a row that allows no key is all
    zeros, with zero gradients.

    Args:
        scores: ``[.., Q, K]``.
        sink: s, broadcastable to ``[.., Q, 1]``.
        allowed: boolean, broadcastable to the scores; true = may attend.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> sink_softmax(torch.zeros(1, 2), 0.0)
        tensor([[0.3333, 0.3333]])
    """
    check_scores(scores, allowed)
    if not scores.shape[-1]:
        return scores
    wide = filled(widened(scores), allowed)
    # S / (exp(s) + S) = sigmoid(log S − s), for the sum S of the exponentials; the rest is a
    # softmax.
    share = torch.sigmoid(torch.logsumexp(wide, dim=-1, keepdim=True) - sink)
    return finished(torch.softmax(wide, dim=-1) * share, scores, allowed)


class SinkSoftmax(Normalizer):
    """:func:`sink_softmax` with one learned logit for each head.

    Parameters: ``sink [heads]``, initially 0.

    Args:
        heads: number of heads H.

    Raises:
        ValueError: ``heads`` is below 1; at the call, scores ``[.., H, Q, K]`` have another number
            of heads.

    Example:
        >>> SinkSoftmax(heads=2)(torch.zeros(2, 1, 3)).detach()
        tensor([[[0.2500, 0.2500, 0.2500]],
        <BLANKLINE>
                [[0.2500, 0.2500, 0.2500]]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        name: Literal["sink-softmax"] = "sink-softmax"

        def build(self, heads: int, query_dim: int) -> "SinkSoftmax":
            return SinkSoftmax(heads)

    def __init__(self, heads: int = 1) -> None:
        super().__init__()
        if heads < 1:
            raise ValueError(f"heads must be at least 1, not {heads}")
        self.heads = heads
        self.sink = nn.Parameter(torch.zeros(heads))

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        if self.heads > 1 and (scores.dim() < 3 or scores.shape[-3] != self.heads):
            raise ValueError(
                f"scores {list(scores.shape)}: expected [.., {self.heads}, Q, K], because there "
                f"are sinks for {self.heads} heads"
            )
        sink = self.sink if self.heads == 1 else self.sink.view(-1, 1, 1)
        return sink_softmax(scores, sink, allowed)

    def sink_logits(self) -> Tensor:
        return self.sink

    def extra_repr(self) -> str:
        return f"{self.heads}"
