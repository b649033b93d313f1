"""Attention whose parts read the weights of earlier steps, one query at a time.

    e_i = score(q_i, k, state_(i−1)),   α_i = normalize(e_i, state_(i−1)),   c_i = Σ_j α_ij v_j
    state_i = advance(state_(i−1), α_i)

Chorowski et al. 2015, Tu et al. 2016, See et al. 2017, Raffel et al. 2017; see the scores and
normalizers. Shapes: B batch, Q queries, K keys, dq, dk, dv widths.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.checking import check_dropout, check_inputs, check_part
from heedful.attention.functional import HALVES
from heedful.attention.masks import Grid, Mask, split_mask
from heedful.attention.mechanism import Mechanism
from heedful.attention.modules import Memory, one_head
from heedful.attention.normalizers import Draw, Normalizer, Queries, Softmax
from heedful.attention.normalizers.recurrent import RecurrentNormalizer
from heedful.attention.scores import ScaledDot, Score
from heedful.attention.scores.recurrent import RecurrentAdditive, RecurrentScore
from heedful.attention.terms import of_one_head
from heedful.attention.watching import Terms, Watchable
from heedful.basics.device import without_autocast
from heedful.basics.shapes import leading_sizes


class AttentionState(NamedTuple):
    """What a recurrent attention carries from step to step.

    Example:
        >>> state = AttentionState(1, (torch.eye(2),), ())
        >>> state.select(torch.tensor([1, 1, 0])).score[0]  # [B, K]
        tensor([[0., 1.],
                [0., 1.],
                [1., 0.]])
    """

    step: int
    """Number of steps so far."""
    score: tuple[Tensor, ...]
    """The score's tensors, ``[B, K]`` each; none for a score without a state."""
    normalizer: tuple[Tensor, ...]
    """The normalizer's tensors, ``[B, K]`` each."""

    def select(self, rows: Tensor) -> "AttentionState":
        """The state of ``rows``, indices ``[N]`` of the batch, for a search that reorders rows."""
        return self.changed(lambda part: part.index_select(0, rows))

    def changed(self, change: Callable[[Tensor], Tensor]) -> "AttentionState":
        """The state with other tensors."""
        score, normalizer = (tuple(map(change, parts)) for parts in (self.score, self.normalizer))
        return AttentionState(self.step, score, normalizer)


class _Compared(NamedTuple):
    """What one step compared, for watchers of terms."""

    query: Tensor
    """Projected, ``[.., 1, D]``."""
    scores: Tensor
    """``[.., 1, K]``"""
    allowed: Tensor | None
    """Which keys may be attended to."""


class _Step(NamedTuple):
    """One step, without states, which would be held until the last step."""

    weights: Tensor
    """``[.., 1, K]``"""
    draw: Draw | None
    compared: _Compared | None
    """None if no watcher needs it."""


class RecurrentAttention(Watchable):
    """One head whose score and normalizer may depend on the weights of the steps before.

    A decoder calls :meth:`remember` and :meth:`start` once for the source and :meth:`step` at each
    step. :meth:`forward` is this loop over queries that are all known. Parts without a state are
    used as in :class:`~heedful.attention.Attention`.

    Args:
        score: compares the query with keys; scaled dot product by default.
        normalize: scores to weights; softmax by default.
        dropout: share of the weights set to zero in training, in [0, 1). The state has the weights
            before dropout.

    Raises:
        TypeError: a part has the wrong class.
        ValueError: dropout is not in [0, 1).

    Source: Chorowski et al. 2015, section 2.2; Raffel et al. 2017, section 2.

    Example:
        >>> from heedful.attention.scores import LocationAware
        >>> attention = RecurrentAttention(LocationAware(3, 5, hidden_dim=7))
        >>> memory = attention.remember(torch.zeros(2, 4, 5))
        >>> context, state = attention.step(torch.zeros(2, 3), memory, attention.start(memory))
        >>> context.shape, state.step
        (torch.Size([2, 5]), 1)
    """

    gives_terms = True

    def __init__(
        self,
        score: Score | None = None,
        normalize: Normalizer | None = None,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        self.score = ScaledDot() if score is None else score
        self.normalize = Softmax() if normalize is None else normalize
        check_part("score", self.score, Score)
        check_part("normalize", self.normalize, Normalizer)
        self.dropout = dropout

    def remember(self, key: Tensor, value: Tensor | None = None) -> Memory:
        """Project ``key [B, K, dk]`` once; ``value [B, K, dv]`` is the key by default."""
        value = key if value is None else value
        check_inputs(key=key, value=value)
        return Memory(self.score.project_key(key), value)

    def start(self, memory: Memory) -> AttentionState:
        """The state before the first step."""
        key = _wide(memory.key)
        score, normalize = self.score, self.normalize
        return AttentionState(
            0,
            score.start(key) if isinstance(score, RecurrentScore) else (),
            normalize.start(key[..., 0]) if isinstance(normalize, RecurrentNormalizer) else (),
        )

    def step(
        self,
        query: Tensor,
        memory: Memory,
        state: AttentionState,
        mask: Mask | Tensor | None = None,
    ) -> tuple[Tensor, AttentionState]:
        """The context ``[B, dv]`` of ``query [B, dq]``, and the next state.

        Args:
            query: one for each row.
            memory: the result of :meth:`remember`.
            state: of :meth:`start`, or of the step before.
            mask: which keys a row may attend to: a mask, or a tensor that broadcasts to
                ``[B, 1, K]``.

        Raises:
            TypeError: the query is not floating-point, or the mask has the wrong class.
            ValueError: shapes do not match.
        """
        query = query.unsqueeze(-2)
        check_inputs(query=query)
        grid = Grid(
            (*leading_sizes(query, memory.key), 1, memory.key.shape[-2]),
            query.device,
            first=state.step,
        )
        found, state = self._weigh(query, memory.key, split_mask(mask, grid), state)
        return self._read([found], memory, found.weights).squeeze(-2), state

    def weigh(
        self,
        query: Tensor,
        memory: Memory,
        state: AttentionState,
        mask: Mask | Tensor | None = None,
    ) -> tuple[Tensor, AttentionState]:
        """The weights ``[B, Q, K]`` of ``query [B, Q, dq]`` themselves, and the next state.

        For decoders that use the weights otherwise than in a context, such as those that copy.
        There is no dropout. Arguments and errors are those of :meth:`step`.
        """
        check_inputs(query=query)
        shape = (*leading_sizes(query, memory.key), 1, memory.key.shape[-2])
        steps = []
        for one in query.split(1, -2):
            split = split_mask(mask, Grid(shape, query.device, first=state.step))
            found, state = self._weigh(one, memory.key, split, state)
            steps.append(found)
        return self._shown(steps, memory, torch.cat([one.weights for one in steps], -2)), state

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        mask: Mask | Tensor | None = None,
    ) -> Tensor:
        """The contexts ``[B, Q, dv]`` of ``query [B, Q, dq]``, step by step.

        Args:
            query: the query of each step; step i is at position i.
            key: ``[B, K, dk]``.
            value: ``[B, K, dv]``; the key by default.
            mask: as for :func:`heedful.attention.attend`.

        Raises:
            TypeError: a tensor is not floating-point, or the mask has the wrong class.
            ValueError: shapes do not match.
        """
        check_inputs(query=query, key=key)
        return self.read(query, self.remember(key, value), mask)

    def read(self, query: Tensor, memory: Memory, mask: Mask | Tensor | None = None) -> Tensor:
        """:meth:`forward` over the result of :meth:`remember`."""
        key = memory.key
        shape = (*leading_sizes(query, key), query.shape[-2], key.shape[-2])
        state, steps = self.start(memory), []
        for step in range(query.shape[-2]):
            row = torch.tensor([step], device=query.device)
            split = split_mask(mask, Grid(shape, query.device, rows=row, first=0))
            one = query[..., step : step + 1, :]
            found, state = self._weigh(one, memory.key, split, state)
            steps.append(found)
        weights = [one.weights for one in steps]
        joined = torch.cat(weights, -2) if weights else query.new_zeros(shape)
        return self._read(steps, memory, joined)

    def _weigh(
        self,
        query: Tensor,
        key: Tensor,
        split: tuple[Tensor | None, Tensor | None],
        state: AttentionState,
    ) -> tuple[_Step, AttentionState]:
        """One step, and the next state."""
        projected = self.score.project_query(query)
        if projected.dtype in HALVES:
            with without_autocast(query):
                return self._step(query, projected.float(), key.float(), split, state)
        return self._step(query, projected, key, split, state)

    def _step(
        self,
        query: Tensor,
        projected: Tensor,
        key: Tensor,
        split: tuple[Tensor | None, Tensor | None],
        state: AttentionState,
    ) -> tuple[_Step, AttentionState]:
        score, normalize, (allowed, bias) = self.score, self.normalize, split
        if isinstance(score, RecurrentScore):
            scores = score.compare_at(projected, key, state.score)
        else:
            scores = score.compare(projected, key)
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        draw = None
        if isinstance(normalize, RecurrentNormalizer):
            weights = normalize.weigh(scores, allowed, state.normalizer)
        else:
            place = torch.tensor([state.step], device=query.device)
            weights = normalize(scores, allowed, Queries(query, place))
            log_probability = normalize.log_probability(scores, allowed, weights)
            if log_probability is not None:
                draw = Draw(log_probability, normalize.entropy(scores, allowed))
        row = weights.squeeze(-2)
        after = AttentionState(
            state.step + 1,
            score.advance(row, key, state.score) if isinstance(score, RecurrentScore) else (),
            normalize.advance(row, state.normalizer)
            if isinstance(normalize, RecurrentNormalizer)
            else (),
        )
        compared = _Compared(projected, scores, allowed) if self.terms_watched else None
        return _Step(weights, draw, compared), after

    def _read(self, steps: Sequence[_Step], memory: Memory, weights: Tensor) -> Tensor:
        """The contexts ``[.., Q, dv]`` of the ``weights [.., Q, K]`` of steps, which watchers
        see."""
        weights = self._shown(steps, memory, weights)
        if self.training and self.dropout:
            weights = F.dropout(weights, self.dropout)
        weights, value = weights.to(memory.value.dtype), memory.value
        if min(weights.dim(), value.dim()) > 2 and value.shape[-3] == 1 < weights.shape[-3]:
            # Entries share the value, which is not copied for each of them.
            return (weights.transpose(-3, -2) @ value).transpose(-3, -2)
        return weights @ value

    def _shown(self, steps: Sequence[_Step], memory: Memory, weights: Tensor) -> Tensor:
        """The weights ``[.., Q, K]`` of steps, after watchers have seen them."""
        if self.watched_at_all:
            draw = _joined([found.draw for found in steps])
            shown = weights.unsqueeze(-3)  # Contexts are computed from the tensor that is shown.
            self.show(shown, None if draw is None else one_head(draw))
            if self.watched_in_part and self.normalize.draws:
                raise ValueError(
                    "sampled weights can only be watched without a selection of rows or top_k"
                )
            if self.watched_in_part:
                self.show_some(lambda rows: shown[..., rows, :], shown, shown.shape[-1])
            weights = shown.squeeze(-3)
            compared = [found.compared for found in steps if found.compared is not None]
            if compared:
                self.show_terms(self._terms(compared, memory, weights))
        return weights

    def _terms(self, steps: Sequence[_Compared], memory: Memory, weights: Tensor) -> Terms:
        """The terms of the equation of some steps, of one head."""
        parts = Mechanism(self.score, self.normalize)
        tanh_vector, sink = parts.tanh_vector(), parts.sink_logits()
        if isinstance(self.score, RecurrentAdditive):
            tanh_vector = self.score.v
        scale = parts.softmax_scale()
        scores = torch.cat([one.scores for one in steps], -2)
        masks = [one.allowed for one in steps if one.allowed is not None]
        like = steps[0].scores
        key, value = _wide(memory.key), _wide(memory.value)
        return of_one_head(
            Terms(
                torch.cat([one.query for one in steps], -2).detach(),
                key.detach(),
                value.detach(),
                scores.detach(),
                torch.cat([one.expand_as(like) for one in masks], -2) if masks else None,
                weights.detach(),
                (weights.to(value.dtype) @ value).detach(),
                dot_scale=parts.dot_scale(key.shape[-1]),
                tanh_vector=tanh_vector,
                softmax_scale=1.0 if scale is None and sink is not None else scale,
                sink=sink,
                past=isinstance(self.score, RecurrentScore),
            )
        )


def _joined(draws: list[Draw | None]) -> Draw | None:
    """The draws of all steps, ``[.., Q]``."""
    known = [draw for draw in draws if draw is not None]
    if not known:
        return None
    entropies = [draw.entropy for draw in known if draw.entropy is not None]
    probability = torch.cat([draw.log_probability for draw in known], -1)
    return Draw(probability, torch.cat(entropies, -1) if entropies else None)


def _wide(key: Tensor) -> Tensor:
    return key.float() if key.dtype in HALVES else key
