"""What every normalizer has in common."""

from typing import NamedTuple

from torch import Tensor, nn


class Queries(NamedTuple):
    """What a normalizer may know of the queries beside their scores.

    Example:
        >>> import torch
        >>> Queries(vectors=torch.zeros(3, 8), positions=torch.arange(3)).positions
        tensor([0, 1, 2])
    """

    vectors: Tensor
    """The queries themselves, before the score's projection: ``[.., Q, dq]``."""
    positions: Tensor
    """Where each query stands, counted from 0: integers ``[Q]``."""


class Draw(NamedTuple):
    """What is known of weights that were drawn, beside the weights (Williams 1992, REINFORCE).

    Example:
        >>> import torch
        >>> Draw(log_probability=torch.tensor([-0.5]), entropy=None).log_probability
        tensor([-0.5000])
    """

    log_probability: Tensor
    """Of having drawn them: ``[.., Q]``."""
    entropy: Tensor | None
    """Of what they were drawn from, in nats ``[.., Q]``; None if the normalizer does not say."""


class Normalizer(nn.Module):
    """Scores ``[.., Q, K]`` to weights of the same shape; a masked weight is exactly zero.

    A new one writes :meth:`forward`. Rows are independent of one another, so that chosen rows can
    be made alone.

    Example:
        >>> import torch
        >>> class Uniform(Normalizer):
        ...     def forward(self, scores, allowed=None, queries=None):
        ...         there = torch.ones_like(scores) * (True if allowed is None else allowed)
        ...         return there / there.sum(-1, keepdim=True).clamp(min=1)
        >>> Uniform()(torch.zeros(1, 4))
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        """Weights ``[.., Q, K]``.

        Args:
            scores: ``[.., Q, K]``.
            allowed: boolean, broadcastable to the scores; true = may attend. None allows all. A
                row that allows nothing gets zeros, with zero gradients.
            queries: for the normalizers that look at more than the scores.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how to normalize")

    def softmax_scale(self) -> float | None:
        """The factor on the scores, if this is a softmax of them; else None.

        A number here lets the fused kernels, which know the softmax alone, stand in for this.
        """
        return None

    def log_probability(
        self, scores: Tensor, allowed: Tensor | None, weights: Tensor
    ) -> Tensor | None:
        """``[.., Q]``: the log-probability of having drawn ``weights``.

        None if nothing is drawn, or if the gradient comes through the weights themselves.
        """
        return None

    def entropy(self, scores: Tensor, allowed: Tensor | None) -> Tensor | None:
        """``[.., Q]``: the entropy, in nats, of what each row's key is drawn from.

        None where :meth:`log_probability` is.
        """
        return None

    @property
    def learns_by_reward(self) -> bool:
        """Whether no gradient comes through its draws, so that scores learn by reward alone."""
        return False

    @property
    def draws(self) -> bool:
        """Whether two calls now may give different weights, because they are drawn at random."""
        return False
