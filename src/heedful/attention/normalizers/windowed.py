"""Windowing: a softmax over the keys within ±w of p_i, the median of the weights α_(i−1).

The median is the first key at which the cumulated weights reach half of their sum; p_1 is the
first key. The window keeps the attention to long utterances from jumping to similar sounds
elsewhere. Chorowski et al. 2015, "Attention-Based Models for Speech Recognition", section 2.3.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from heedful.attention.normalizers.base import NormalizerSettings
from heedful.attention.normalizers.preparing import check_scores, widened
from heedful.attention.normalizers.recurrent import RecurrentNormalizer, State
from heedful.attention.normalizers.softmax import masked_softmax
from heedful.basics.limits import MOST_POSITIONS


def median_key(weights: Tensor) -> Tensor:
    """The first key, ``[.., 1]``, at which cumulated ``weights [.., K]`` reach half of their sum.

    It is key 0 if all weights are zero.

    Example:
        >>> median_key(torch.tensor([[0.25, 0.25, 0.5], [0.1, 0.1, 0.8]]))
        tensor([[1],
                [2]])
    """
    sums = widened(weights).cumsum(-1)
    return (sums < sums[..., -1:] / 2).sum(-1, keepdim=True)


def windowed(scores: Tensor, before: Tensor, window: int, allowed: Tensor | None = None) -> Tensor:
    """Softmax of ``scores [.., 1, K]`` over the allowed keys within ``window`` of the median.

    Args:
        scores: of one query, ``[.., 1, K]``.
        before: α_(i−1), the weights of the step before, ``[.., K]``. Their median has no gradient.
        window: w, the largest distance of a key from their median, on either side.
        allowed: boolean, broadcastable to the scores; true = may attend. A row that allows no key
            in its window is all zeros, with zero gradients.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> windowed(torch.zeros(1, 5), torch.tensor([0.1, 0.1, 0.1, 0.7, 0.0]), window=1)
        tensor([[0.0000, 0.0000, 0.3333, 0.3333, 0.3333]])
    """
    check_scores(scores, allowed)
    keys = torch.arange(scores.shape[-1], device=scores.device)
    near = ((keys - median_key(before)).abs() <= window).unsqueeze(-2)  # [.., 1, K]
    return masked_softmax(scores, near if allowed is None else near & allowed)


class Windowed(RecurrentNormalizer):
    """:func:`windowed` in evaluation, by default; a softmax over all keys in training.

    The window is around the first key in the first step. A step without weights leaves it where it
    is.

    Args:
        window: w, at least 0: how far from the median a key may be. The paper has 75.
        in_training: whether there is a window in training, too.

    Raises:
        ValueError: the window is negative.

    Source: Chorowski et al. 2015, section 2.3.

    Example:
        >>> Windowed(window=1).eval()(torch.zeros(1, 4))  # [Q, K]
        tensor([[0.5000, 0.5000, 0.0000, 0.0000]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        reads_past: ClassVar[bool] = True
        name: Literal["windowed"] = "windowed"
        window: int = Field(75, ge=0, le=MOST_POSITIONS)
        """w, positions on either side of the median."""
        in_training: bool = False
        """Whether there is a window in training, too."""
        not_for_heads: ClassVar[str] = "needs the weights of the step before"

        def build(self, heads: int, query_dim: int) -> "Windowed":
            return Windowed(self.window, in_training=self.in_training)

    def __init__(self, window: int = 75, *, in_training: bool = False) -> None:
        super().__init__()
        if window < 0:
            raise ValueError(f"window must be at least 0, not {window}")
        self.window, self.in_training = window, in_training

    def start(self, like: Tensor) -> State:
        first = torch.arange(like.shape[-1], device=like.device) == 0
        return (first.to(like.dtype).expand(like.shape),)

    def weigh(self, scores: Tensor, allowed: Tensor | None, state: State) -> Tensor:
        if self.training and not self.in_training:
            check_scores(scores, allowed)
            return masked_softmax(scores, allowed)
        return windowed(scores, state[0], self.window, allowed)

    def advance(self, weights: Tensor, state: State) -> State:
        weights = weights.detach()
        return (torch.where(weights.any(-1, keepdim=True), weights, state[0]),)

    def extra_repr(self) -> str:
        return f"window={self.window}, in_training={self.in_training}"
