"""Softmax off by one: α_i = exp(e_i) / (1 + Σ_j exp(e_j)): a row may attend to (almost) nothing.

The same as a softmax with one more key, whose score is 0 and whose value is 0. Miller 2023,
"Attention Is Off By One".
"""

from typing import Literal

from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.sink_softmax import sink_softmax


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
        >>> import torch
        >>> softmax_off_by_one(torch.tensor([[0.0, 0.0], [999.0, 0.0]]))
        tensor([[0.3333, 0.3333],
                [1.0000, 0.0000]])
    """
    return sink_softmax(scores, 0.0, allowed)


class SoftmaxOffByOne(Normalizer):
    """:func:`softmax_off_by_one` as a normalizer.

    Example:
        >>> import torch
        >>> SoftmaxOffByOne()(torch.zeros(1, 3))
        tensor([[0.2500, 0.2500, 0.2500]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        name: Literal["softmax-off-by-one"] = "softmax-off-by-one"

        def build(self, heads: int, query_dim: int) -> "SoftmaxOffByOne":
            return SoftmaxOffByOne()

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        return softmax_off_by_one(scores, allowed)

    def sink_logits(self) -> float:
        return 0.0
