"""The base class of parts that combine the scores or weights of several heads.

Shapes: B batch, H heads, M heads after mixing, Q queries, K keys, E width of a value.
"""

from torch import Tensor, nn


class HeadMixing(nn.Module):
    """Combines heads; a subclass overrides what it changes.

    Args:
        heads: number of heads H of queries.

    Raises:
        ValueError: ``heads`` is below 1.

    Example:
        >>> import torch
        >>> class MeanOfHeads(HeadMixing):
        ...     def mix_weights(self, weights):
        ...         return weights.mean(-3, keepdim=True).expand_as(weights)
        >>> MeanOfHeads(2).mix_weights(torch.eye(2).view(2, 1, 2))
        tensor([[[0.5000, 0.5000]],
        <BLANKLINE>
                [[0.5000, 0.5000]]])
    """

    contexts_suffice: bool = False
    """Whether :meth:`mix_contexts` has the same result as :meth:`mix_weights` without weights."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        if heads < 1:
            raise ValueError(f"heads must be at least 1, not {heads}")
        self.heads = heads

    def mix_scores(self, scores: Tensor) -> Tensor:
        """Scores ``[.., H, Q, K]`` of the mixed heads, before the mask and the normalizer."""
        return scores

    def mix_weights(self, weights: Tensor) -> Tensor:
        """Weights ``[.., M, Q, K]`` of the mixed heads, from those of the heads."""
        return weights

    def mix_contexts(self, contexts: Tensor) -> Tensor:
        """Contexts ``[.., M, Q, E]`` from those of the heads, ``[.., H, Q, E]``, if mixed heads
        share their values."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `mix_contexts`")

    def spread_values(self, value: Tensor) -> Tensor:
        """The value that each head reads, ``[.., H, K, E]``, from those of the mixed heads."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `spread_values`")
