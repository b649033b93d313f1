"""Sampled hard: a key sampled from the softmax, s ~ Multinoulli(α), α_i = exp(e_i) / Σ_j exp(e_j).

Xu et al. 2015, "Show, Attend and Tell", section 4.1 (stochastic hard attention); the gradient is
that of Williams 1992 (REINFORCE): ∇ E[r] = E[r · ∇ log p(s)], for a reward r.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.hard import chosen_key, hard, one_hot
from heedful.attention.normalizers.preparing import check_scores, filled, widened
from heedful.attention.normalizers.softmax import masked_softmax


def sampled_hard(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """One-hot weights at one key for each row of ``scores [.., Q, K]``, sampled from their softmax.

    No gradient flows through the sample (it is zero): the surrogate for the scores is
    :func:`log_probability_of`. A row that allows no key is all zeros.

    Args:
        scores: ``[.., Q, K]``.
        allowed: boolean, broadcastable to the scores; true = may attend.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> sampled_hard(torch.tensor([[0.0, 99.0]]), torch.tensor([[True, False]]))
        tensor([[1., 0.]])
    """
    check_scores(scores, allowed)
    noisy = widened(scores) + gumbel_noise(scores)
    return one_hot(scores, chosen_key(noisy, allowed))


def gumbel_noise(scores: Tensor) -> Tensor:
    """Standard Gumbel noise of the scores' shape; the maximum of scores + noise is a sample.

    At least float32: in half precision the rare high values, which decide, would be too coarse.
    """
    wide = widened(scores)
    return -torch.empty_like(wide).exponential_().log()


def log_probability_of(weights: Tensor, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """``log p`` of the sampled keys under the softmax of the scores: ``[.., Q]``, at least float32.

    Args:
        weights: one-hot ``[.., Q, K]`` of :func:`sampled_hard`. A row with several weights was not
            sampled: 0, with no gradient.
        scores: ``[.., Q, K]``.
        allowed: as in sampling. A row that allows no key gets 0, with no gradient.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> log_probability_of(torch.tensor([[0.0, 1.0]]), torch.zeros(1, 2)).exp()
        tensor([0.5000])
    """
    check_scores(scores, allowed)
    logs = torch.log_softmax(filled(widened(scores), allowed), dim=-1)
    return logs.masked_fill(weights != 1, 0.0).sum(-1)


def entropy_of(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Entropy of the softmax of ``scores [.., Q, K]``, in nats: ``[.., Q]``, at least float32.

    Args:
        scores: ``[.., Q, K]``.
        allowed: boolean, broadcastable to the scores; true = may attend. A row that allows no key
            gets 0, with no gradient.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> entropy_of(torch.zeros(1, 4)).exp()
        tensor([4.])
    """
    check_scores(scores, allowed)
    logs = torch.log_softmax(filled(widened(scores), allowed), dim=-1)
    parts = -logs.exp() * logs
    if allowed is not None:
        parts = parts.masked_fill(~allowed, 0.0)
    return parts.sum(-1)


class SampledHard(Normalizer):
    """Samples one key for each row in training, and takes the highest score in evaluation.

    Its loss is ``-(reward.detach() - baseline) * log_probability``, in addition to the loss on the
    context. :func:`heedful.attention.watch` returns the log-probability of the sampled keys and
    the entropy of their distribution.

    A share of the rows may get the softmax itself, the expectation of the sample, whose gradient is
    exact: the model then learns what the right key contains long before sampling finds it (Xu et
    al. 2015, section 4.2, who do so half the time).

    Args:
        expected: share of the rows that get the softmax in training, in [0, 1).

    Raises:
        ValueError: ``expected`` is not in [0, 1).

    Example:
        >>> SampledHard().eval()(torch.tensor([[0.1, 0.3]]))
        tensor([[0., 1.]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        not_for_heads: ClassVar[str] = "is trained by reward; use model.kind = 'recurrent'"
        name: Literal["sampled-hard"] = "sampled-hard"
        expected: float = Field(0.5, ge=0, lt=1)
        """Share of training steps that use the expectation instead of a sample."""

        def build(self, heads: int, query_dim: int) -> "SampledHard":
            return SampledHard(self.expected)

    def __init__(self, expected: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= expected < 1.0:
            raise ValueError(f"expected must be in [0, 1), not {expected}")
        self.expected = expected

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        if not self.draws:
            return hard(scores, allowed)
        drawn = sampled_hard(scores, allowed)
        if not self.expected:
            return drawn
        soft = torch.rand_like(widened(scores[..., :1])) < self.expected
        return torch.where(soft, masked_softmax(widened(scores), allowed).to(scores.dtype), drawn)

    def log_probability(
        self, scores: Tensor, allowed: Tensor | None, weights: Tensor
    ) -> Tensor | None:
        return log_probability_of(weights, scores, allowed) if self.draws else None

    def entropy(self, scores: Tensor, allowed: Tensor | None) -> Tensor | None:
        return entropy_of(scores, allowed) if self.draws else None

    @property
    def learns_by_reward(self) -> bool:
        return True

    @property
    def draws(self) -> bool:
        return self.training

    def extra_repr(self) -> str:
        return f"expected={self.expected}" if self.expected else ""
