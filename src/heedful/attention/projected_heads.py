"""Attention of heads that another module has projected: the part that models of other libraries
exchange.

Shapes: B batch, H heads, G key and value heads, Q queries, K keys, D width of a head.
"""

from torch import Tensor

from heedful.attention.checking import check_inputs, heads_of_a_group
from heedful.attention.masks import Mask
from heedful.attention.mechanism import ProjectedQuery
from heedful.attention.modules import Attentive, Memory
from heedful.attention.normalizers import Normalizer
from heedful.attention.scores import Score


class ProjectedHeads(Attentive):
    """``Attn(q_j, k_j, v_j)`` for heads j that are projected elsewhere.

    Args:
        score: compares vectors of width D; scaled dot product by default.
        normalize: scores to weights; softmax by default.

    Raises:
        TypeError: a part has the wrong class.
        ValueError: a part needs the weights of the step before.
    """

    def __init__(self, score: Score | None = None, normalize: Normalizer | None = None) -> None:
        super().__init__(score, normalize, None, 0.0)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        """The context ``[B, H, Q, dv]``.

        Args:
            query: ``[B, H, Q, D]``.
            key: ``[B, G, K, D]``; each head is read by H / G heads of queries.
            value: ``[B, G, K, dv]``.
            mask: a mask, or a tensor that broadcasts to ``[B, H, Q, K]``; true = may attend.
            scale: factor on dot products instead of 1 / √D. Queries are multiplied by scale · √D,
                whatever the score.
            dropout: share of the weights set to zero.
        """
        check_inputs(grouped=True, query=query, key=key, value=value)
        width = query.shape[-1]
        if scale is not None and scale != width**-0.5:
            query = query * (scale * width**0.5)
        each = heads_of_a_group(query, key, value)
        if each > 1 and self.watched_at_all:
            key, value = (part.repeat_interleave(each, dim=-3) for part in (key, value))
        parts = self.mechanism
        memory = Memory(parts.remember(key), value)
        projected_query = ProjectedQuery.project(parts, query, key.shape[-2])
        return self._context(parts, projected_query, memory, mask, heads=True, dropout=dropout)
