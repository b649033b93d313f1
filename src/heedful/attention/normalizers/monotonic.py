"""Monotonic attention: each step goes on from the key of the step before, and stops at a key with
probability p.

    p_ij = σ(e_ij + noise)
    q_ij = (1 − p_i,j−1) q_i,j−1 + α_i−1,j      the probability to arrive at key j
    α_ij = p_ij q_ij                            the probability to stop there

These expected weights train the scores; α_0 is 1 at the first key. After training, the step stops
at the first key from the last one on whose p is above 1/2, and its weight is 1. If there is none,
the weights are 0, and those of all later steps. Raffel et al. 2017, "Online and Linear-Time
Attention by Enforcing Monotonic Alignments", sections 2.2 to 2.5, and algorithm 1.

The paper's parallel formula divides by a cumulative product, which underflows.
:func:`linear_recurrence` computes the same in log₂ K steps without a division.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from heedful.attention.normalizers.base import NormalizerSettings
from heedful.attention.normalizers.hard import one_hot
from heedful.attention.normalizers.preparing import check_scores, finished, widened
from heedful.attention.normalizers.recurrent import RecurrentNormalizer, State


def linear_recurrence(decay: Tensor, inputs: Tensor) -> Tensor:
    """``q_j = decay_j q_j−1 + inputs_j`` over the last dimension, ``q_−1 = 0``.

    Two neighbouring steps are one step with the product of their decays (Blelloch 1990, "Prefix
    Sums and Their Applications", section 1.4), so that distances double each time.

    Args:
        decay: ``[.., K]``.
        inputs: ``[.., K]``.

    Example:
        >>> linear_recurrence(torch.tensor([0.5, 0.5, 0.5]), torch.tensor([1.0, 0.0, 1.0]))
        tensor([1.0000, 0.5000, 1.2500])
    """
    distance, keys = 1, inputs.shape[-1]
    while distance < keys:
        inputs = inputs + decay * F.pad(inputs, (distance, 0))[..., :keys]
        decay = decay * F.pad(decay, (distance, 0))[..., :keys]
        distance *= 2
    return inputs


def expected_alignment(stop: Tensor, before: Tensor) -> Tensor:
    """The expected weights α_i ``[.., K]``.

    Args:
        stop: p_i, the probability to stop at each key, ``[.., K]``.
        before: α_(i−1), ``[.., K]``.

    Source: Raffel et al. 2017, section 2.3.

    Example:
        >>> expected_alignment(torch.tensor([0.5, 0.5, 1.0]), torch.tensor([1.0, 0.0, 0.0]))
        tensor([0.5000, 0.2500, 0.2500])
    """
    passed = F.pad(1.0 - stop, (1, 0))[..., : stop.shape[-1]]
    return stop * linear_recurrence(passed, before)


def hard_alignment(stop: Tensor, before: Tensor) -> Tensor:
    """One-hot weights ``[.., K]`` at the first key, from the last one on, that is true in ``stop``.

    Args:
        stop: booleans ``[.., K]``.
        before: one-hot weights of the step before, ``[.., K]``, or zeros.

    Source: Raffel et al. 2017, algorithm 1.

    Example:
        >>> hard_alignment(torch.tensor([True, False, True]), torch.tensor([0.0, 1.0, 0.0]))
        tensor([0., 0., 1.])
    """
    candidates = stop & (before.cumsum(-1) > 0.5)
    first = candidates & (candidates.cumsum(-1) == 1)
    return first.to(before.dtype)


class Monotonic(RecurrentNormalizer):
    """Expected weights in training, hard ones in evaluation.

    Scores should have a learned offset, such as :class:`~heedful.attention.scores.Energy`: unlike
    those of a softmax, the weights change if a constant is added to all scores. Rows sum to at most
    1. Masked keys are passed.

    Args:
        noise: standard deviation of the normal noise on the scores in training, at least 0, which
            makes probabilities near 0 and 1 worthwhile (section 2.5).
        hard: whether weights are hard in evaluation.

    Raises:
        ValueError: the noise is negative or not finite.

    Source: Raffel et al. 2017, sections 2.2 to 2.5.

    Example:
        >>> Monotonic().eval()(torch.tensor([[-1.0, 2.0, 3.0]]))  # [Q, K]
        tensor([[0., 1., 0.]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        reads_past: ClassVar[bool] = True
        name: Literal["monotonic"] = "monotonic"
        noise: float = Field(1.0, ge=0, allow_inf_nan=False)
        """Standard deviation of the noise on the scores in training."""
        hard: bool = True
        """Whether weights are hard in evaluation."""
        not_for_heads: ClassVar[str] = "needs the weights of the step before"

        def build(self, heads: int, query_dim: int) -> "Monotonic":
            return Monotonic(self.noise, hard=self.hard)

    def __init__(self, noise: float = 1.0, *, hard: bool = True) -> None:
        super().__init__()
        if not 0 <= noise < float("inf"):
            raise ValueError(f"noise must be at least 0 and finite, not {noise}")
        self.noise, self.hard = noise, hard

    @property
    def draws(self) -> bool:
        return self.training and self.noise > 0

    def start(self, like: Tensor) -> State:
        first = torch.arange(like.shape[-1], device=like.device) == 0
        return (first.to(like.dtype).expand(like.shape),)

    def weigh(self, scores: Tensor, allowed: Tensor | None, state: State) -> Tensor:
        check_scores(scores, allowed)
        wide, before = widened(scores), state[0].unsqueeze(-2)
        if not self.training and self.hard:
            stop = wide > 0
            if allowed is not None:
                stop = stop & allowed
            return one_hot(scores, hard_alignment(stop, before).bool())
        if self.draws:
            wide = wide + self.noise * torch.randn_like(wide)
        probability = torch.sigmoid(wide)
        if allowed is not None:
            probability = probability.masked_fill(~allowed, 0.0)
        weights = expected_alignment(probability, before.to(wide.dtype))
        return finished(weights, scores, allowed)

    def advance(self, weights: Tensor, state: State) -> State:
        return (weights,)

    def extra_repr(self) -> str:
        return f"noise={self.noise:g}, hard={self.hard}"
