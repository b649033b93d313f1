"""Attention as a module: score, normalizer and positions combined; keys are projected once."""

from typing import Literal, NamedTuple

from torch import Tensor

from heedful.attention.checking import check_dropout, check_inputs
from heedful.attention.functional import aggregate, attend_projected, projected_weights
from heedful.attention.heads.mixing import HeadMixing
from heedful.attention.masks import Mask
from heedful.attention.masks.settings import both
from heedful.attention.mechanism import Mechanism, ProjectedQuery
from heedful.attention.normalizers import Draw, Normalizer, Softmax
from heedful.attention.places import First
from heedful.attention.positions.base import RelativePositions
from heedful.attention.scores import ScaledDot, Score
from heedful.attention.terms import equation_terms, of_one_head
from heedful.attention.watching import Watchable


class Memory(NamedTuple):
    """Projected keys and values: everything that does not depend on the query.

    Example:
        >>> import torch
        >>> Attention().remember(torch.zeros(4, 2)).value.shape
        torch.Size([4, 2])
    """

    key: Tensor
    """Projected keys ``[.., K, D]``."""
    value: Tensor
    """Projected values ``[.., K, dv]``."""


def one_head(draw: Draw) -> Draw:
    """The draw ``[.., 1, Q]`` of one head."""
    entropy = None if draw.entropy is None else draw.entropy.unsqueeze(-2)
    return Draw(draw.log_probability.unsqueeze(-2), entropy)


class Attentive(Watchable):
    """Base of single-head and multi-head modules."""

    gives_terms = True

    def __init__(
        self,
        score: Score | None,
        normalize: Normalizer | None,
        positions: RelativePositions | None,
        dropout: float,
        mixing: HeadMixing | None = None,
        mask: Mask | None = None,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        parts = Mechanism(
            ScaledDot() if score is None else score,
            Softmax() if normalize is None else normalize,
            positions,
            mixing,
        ).check()
        self.score, self.normalize, self.positions = parts.score, parts.normalize, parts.positions
        self.mixing, self.dropout, self.mask = parts.mixing, dropout, mask

    @property
    def mechanism(self) -> Mechanism:
        """The current parts."""
        return Mechanism(self.score, self.normalize, self.positions, self.mixing)

    def computed(self) -> Literal["fused", "tiles", "plain"]:
        """How the context is computed; see :meth:`.mechanism.Mechanism.computed`."""
        return self.mechanism.computed(getattr(self, "head_dim", 1))

    def _context(
        self,
        parts: Mechanism,
        projected_query: ProjectedQuery,
        memory: Memory,
        mask: Mask | Tensor | None,
        *,
        heads: bool,
        dropout: float | None = None,
    ) -> Tensor:
        """The context ``[.., Q, dv]``; watchers get the weights as ``[B, H, Q, K]``.

        ``dropout`` is that of the module by default.
        """
        if dropout is None:
            dropout = self.dropout if self.training else 0.0
        key, value = memory
        if self.mask is not None:
            query = projected_query.projected
            own = self.mask.for_heads(query.dim() - 1) if heads else self.mask
            if isinstance(mask, Tensor) and mask.is_floating_point():
                own = own.of_vectors(query, key, projected_query.first)
            mask = both(own, mask, projected_query.grid(key))
        if not self.watched_at_all:
            return attend_projected(parts, projected_query, key, value, mask, dropout)
        if isinstance(mask, Mask):  # Before rows are chosen, of which the mask is no function.
            mask = mask.of_vectors(projected_query.projected, key, projected_query.first)
        if self.watched:
            weights, draw = projected_weights(parts, projected_query, key, mask)
            # Watchers get the tensor that the context is computed from, so that gradients reach it.
            shown = weights if heads else weights.unsqueeze(-3)
            self.show(shown, draw if heads or draw is None else one_head(draw))
            weights = shown if heads else shown.squeeze(-3)
            context = aggregate(parts, projected_query, weights, value, dropout)
            if self.terms_watched:
                given = parts, projected_query, key, value, mask
                found = equation_terms(*given, weights, context)
                self.show_terms(found if heads else of_one_head(found))
        else:
            context = attend_projected(parts, projected_query, key, value, mask, dropout)
        if self.watched_in_part:
            if parts.normalize.draws:
                raise ValueError(
                    "sampled weights can only be watched without a selection of rows or top_k"
                )

            def rows_of(rows: Tensor) -> Tensor:
                weights = projected_weights(parts, projected_query.choose(rows), key, mask)[0]
                return weights if heads else weights.unsqueeze(-3)

            self.show_some(rows_of, projected_query.projected, key.shape[-2])
        return context


class Attention(Attentive):
    """One head: any score with any normalizer.

    ``forward(query, key, value)`` is ``read(query, remember(key, value))``; call the two separately
    to read the same keys at many steps.

    Args:
        score: compares queries with keys; scaled dot product by default.
        normalize: scores to weights; softmax by default.
        positions: rotates queries and keys, or changes scores and values; none by default.
        mask: a mask that is combined with the one of each call; none by default.
        dropout: share of the weights set to zero in training, in [0, 1).

    Raises:
        TypeError: a part has the wrong class.
        ValueError: dropout is not in [0, 1).

    Source: Bahdanau et al. 2015, section 3.1; Vaswani et al. 2017, section 3.2.1.

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
        positions: RelativePositions | None = None,
        mask: Mask | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(score, normalize, positions, dropout, mask=mask)

    def remember(self, key: Tensor, value: Tensor | None = None, first: First = 0) -> Memory:
        """Project ``key [.., K, dk]`` once; ``value [.., K, dv]`` is the key by default.

        Args:
            key: the keys.
            value: the values.
            first: position of the first key, if there are earlier keys in another memory; or of
                each entry, ``[B]``, or of all keys, ``[B, K]``.
        """
        value = key if value is None else value
        check_inputs(key=key, value=value)
        return Memory(self.mechanism.remember(key, first), value)

    def read(
        self,
        query: Tensor,
        memory: Memory,
        mask: Mask | Tensor | None = None,
        first: First | None = None,
    ) -> Tensor:
        """The context ``[.., Q, dv]`` of ``query [.., Q, dq]`` over the memory.

        ``first`` is the position of the first query; see :func:`heedful.attention.attend`.
        """
        parts = self.mechanism
        projected_query = ProjectedQuery.project(parts, query, memory.key.shape[-2], first)
        return self._context(parts, projected_query, memory, mask, heads=False)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        mask: Mask | Tensor | None = None,
        first: First | None = None,
    ) -> Tensor:
        """The context ``[.., Q, dv]``; shapes and errors as in :func:`heedful.attention.attend`."""
        value = key if value is None else value
        check_inputs(query=query, key=key, value=value)
        parts = self.mechanism
        projected_query = ProjectedQuery.project(parts, query, key.shape[-2], first)
        return self._context(
            parts, projected_query, Memory(parts.remember(key), value), mask, heads=False
        )
