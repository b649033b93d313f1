"""The base class of normalizers."""

from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from heedful.basics.parts import Parts, PartSettings


class Queries(NamedTuple):
    """The queries' vectors and positions, for normalizers that need more than scores.

    Example:
        >>> import torch
        >>> Queries(vectors=torch.zeros(3, 8), positions=torch.arange(3)).positions
        tensor([0, 1, 2])
    """

    vectors: Tensor
    """The queries themselves, before the score's projection: ``[.., Q, dq]``."""
    positions: Tensor
    """The position of each query, counted from 0: integers ``[Q]``."""


class Draw(NamedTuple):
    """Log-probability and entropy of sampled weights (Williams 1992, REINFORCE).

    Example:
        >>> import torch
        >>> Draw(log_probability=torch.tensor([-0.5]), entropy=None).log_probability
        tensor([-0.5000])
    """

    log_probability: Tensor
    """The log-probability of the sampled weights: ``[.., Q]``."""
    entropy: Tensor | None
    """The entropy of their distribution, in nats ``[.., Q]``; None if the normalizer has none."""


class Normalizer(nn.Module):
    """Scores ``[.., Q, K]`` to weights of the same shape; a masked weight is exactly zero.

    A subclass implements :meth:`forward`. Rows are independent, so that some rows can be
    computed without the others.

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
            queries: for normalizers that need more than the scores.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement `forward`")

    def softmax_scale(self) -> float | None:
        """The factor on the scores, if this normalizer is a softmax of them; else None.

        A number enables the fused kernels, which only implement softmax.
        """
        return None

    def sink_logits(self) -> Tensor | float | None:
        """The score of one more key of value 0, if this is a softmax over the keys and it.

        ``[H]``, one for each head, or one for all; None if this is not such a normalizer. Logits
        enable the fused kernels, which get that key.
        """
        return None

    def log_probability(
        self, scores: Tensor, allowed: Tensor | None, weights: Tensor
    ) -> Tensor | None:
        """``[.., Q]``: the log-probability of sampled ``weights``.

        None if nothing is sampled, or if the gradient flows through the weights themselves.
        """
        return None

    def entropy(self, scores: Tensor, allowed: Tensor | None) -> Tensor | None:
        """``[.., Q]``: the entropy, in nats, of the distribution that each row's key is drawn from.

        None if :meth:`log_probability` is None.
        """
        return None

    @property
    def learns_by_reward(self) -> bool:
        """Whether no gradient flows through samples, so that scores learn only from a reward."""
        return False

    @property
    def draws(self) -> bool:
        """Whether weights are currently sampled, so that two calls may return different weights."""
        return False


class NormalizerSettings(PartSettings):
    """Base of the settings of normalizers; a table of this type is that of the normalizer it names.

    The normalizer takes scores ``[.., heads, Q, K]``.

    Example:
        >>> NormalizerSettings.model_validate("sparsemax").build(heads=4, query_dim=8)
        Sparsemax()
    """

    parts: ClassVar[Parts["NormalizerSettings"]] = Parts("normalizer")
    reads_past: ClassVar[bool] = False
    """Whether weights depend on earlier steps, or on their number."""
    passes_gradient: ClassVar[bool] = True
    """Whether the scores are trained, by a gradient or by a reward."""
    not_for_heads: ClassVar[str] = ""
    """Why the heads of a Transformer cannot use it; empty if they can."""

    def build(self, heads: int, query_dim: int) -> Normalizer:
        """The normalizer of scores of ``heads`` heads, for queries of width ``query_dim``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `build`")
