"""Hard: all the weight on the key with the highest score, α_i = 1 for i = argmax_j e_j.

The limit of softmax as its temperature goes to 0, and what :class:`SampledHard` and
:class:`GumbelStraightThrough` do in evaluation. Xu et al. 2015, "Show, Attend and Tell", section
4.1 (hard attention).
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.preparing import check_scores


def hard(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """One-hot weights at the highest of ``scores [.., Q, K]``; the first if several are equal.

    The gradient is zero, because small changes of the scores have no effect. A row that allows no
    key is all zeros.

    Args:
        scores: ``[.., Q, K]``.
        allowed: boolean, broadcastable to the scores; true = may attend.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> hard(torch.tensor([[1.0, 3.0, 3.0]]))
        tensor([[0., 1., 0.]])
    """
    check_scores(scores, allowed)
    return one_hot(scores, chosen_key(scores, allowed))


def chosen_key(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """True at the first highest allowed score of each row, if it allows any: ``[.., Q, K]``."""
    if not scores.shape[-1]:
        return torch.zeros_like(scores, dtype=torch.bool)
    scores = scores.detach()
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    best = scores.argmax(-1, keepdim=True)
    chosen = torch.arange(scores.shape[-1], device=scores.device) == best
    return chosen if allowed is None else chosen & allowed


def one_hot(scores: Tensor, chosen: Tensor) -> Tensor:
    """1 for the chosen keys and 0 elsewhere, in the scores' dtype.

    The result depends on the scores in the autograd graph, so that their gradient is zero instead
    of missing, as with every normalizer.
    """
    return scores.masked_fill(chosen, 1.0).masked_fill(~chosen, 0.0)


class Hard(Normalizer):
    """:func:`hard` as a normalizer. No gradient reaches the scores, so use it after training.

    Example:
        >>> Hard()(torch.tensor([[0.1, 0.3, 0.2]]))
        tensor([[0., 1., 0.]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        passes_gradient: ClassVar[bool] = False
        not_for_heads: ClassVar[str] = "passes no gradient to the scores"
        name: Literal["hard"] = "hard"

        def build(self, heads: int, query_dim: int) -> "Hard":
            return Hard()

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        return hard(scores, allowed)
