"""Attention as a module: the parts put together, keys projected once."""

from typing import NamedTuple

from torch import Tensor

from heedful.attention.functional import (
    aggregate,
    attend_projected,
    check_dropout,
    check_inputs,
    projected_weights,
)
from heedful.attention.masks import Mask
from heedful.attention.normalizers import Normalizer, Softmax
from heedful.attention.scores import ScaledDot, Score
from heedful.attention.watching import Watchable


class Memory(NamedTuple):
    """What is attended to, with all done that does not depend on the query."""

    key: Tensor
    """Projected keys ``[.., K, D]``."""
    value: Tensor
    """Projected values ``[.., K, dv]``."""


class Attention(Watchable):
    """One head: any score with any normalizer.

    ``forward(query, key, value)`` is ``read(query, remember(key, value))``; who reads the same keys
    at many steps calls the two apart.

    Args:
        score: how a query fits a key; scaled dot product unless given.
        normalize: scores to weights; softmax unless given.
        dropout: share of the weights set to zero in training, in [0, 1).

    Example:
        >>> import torch
        >>> from heedful.attention.scores import Additive
        >>> attention = Attention(score=Additive(3, 5, hidden_dim=7))
        >>> attention(torch.zeros(2, 1, 3), torch.zeros(2, 4, 5)).shape
        torch.Size([2, 1, 5])
    """

    def __init__(
        self,
        score: Score | None = None,
        normalize: Normalizer | None = None,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        self.score = score or ScaledDot()
        self.normalize = normalize or Softmax()
        self.dropout = dropout

    def remember(self, key: Tensor, value: Tensor | None = None) -> Memory:
        """Project ``key [.., K, dk]`` once; ``value [.., K, dv]`` is the keys unless given."""
        value = key if value is None else value
        check_inputs(key=key, value=value)
        return Memory(self.score.project_key(key), value)

    def read(self, query: Tensor, memory: Memory, mask: Mask | Tensor | None = None) -> Tensor:
        """The context ``[.., Q, dv]`` of ``query [.., Q, dq]`` over what was remembered."""
        projected = self.score.project_query(query)
        dropout = self.dropout if self.training else 0.0
        if not self.watched:
            return attend_projected(
                projected,
                memory.key,
                memory.value,
                score=self.score,
                mask=mask,
                normalize=self.normalize,
                dropout=dropout,
            )
        weights = projected_weights(
            projected, memory.key, score=self.score, mask=mask, normalize=self.normalize
        )
        self.show(weights.unsqueeze(-3))
        return aggregate(weights, memory.value, dropout)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        mask: Mask | Tensor | None = None,
    ) -> Tensor:
        """The context ``[.., Q, dv]``; shapes and errors as in :func:`heedful.attention.attend`."""
        check_inputs(query=query, key=key, value=key if value is None else value)
        return self.read(query, self.remember(key, value), mask)
