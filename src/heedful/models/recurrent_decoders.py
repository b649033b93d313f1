"""The decoders of the recurrent encoder–decoder: without attention, Bahdanau's and Luong's.

Shapes: N rows (a batch, or those of a search), S source positions, T target positions, E embedding,
H hidden, D = H the readout's width, A an annotation's width (H, or 2·H with two directions).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from heedful.attention import Attention, Memory, masks, normalizers, scores
from heedful.layers.recurrent import Hidden, Maxout, RecurrentStack, glorot_linear
from heedful.layers.stepwise import Stepwise
from heedful.models.recurrent_settings import RecurrentSettings


@dataclass(frozen=True)
class RecurrentState:
    """What decoding carries for N rows."""

    hidden: Hidden
    """Each decoder layer's state."""
    memory: tuple[Tensor, ...]
    """What of the source is read at every step; its first dimension is N."""
    sources: Tensor
    """Number of each row's source ``[N]``."""
    feed: Tensor | None = None
    """The attentional vector of the step before ``[N, H]``, with input feeding."""

    def select(self, rows: Tensor) -> "RecurrentState":
        """The state of ``rows [M]`` in that order; a row may be repeated or left out."""
        sources = self.sources.index_select(0, rows)
        # Rows that change places among those of one source, as beams do, keep the memory.
        same = sources.shape == self.sources.shape and torch.equal(sources, self.sources)
        return RecurrentState(
            hidden=tuple(_select(layer, rows) for layer in self.hidden),
            memory=self.memory if same else _select(self.memory, rows),
            sources=sources,
            feed=None if self.feed is None else self.feed.index_select(0, rows),
        )


def _select(parts: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(part.index_select(0, rows) for part in parts)


class RecurrentDecoder(nn.Module):
    """Base of the decoders; ``stack`` reads ``[embedding; more]`` at every step."""

    feeding = False
    """Whether a step reads the attentional vector of the one before."""

    def __init__(self, settings: RecurrentSettings, more: int) -> None:
        super().__init__()
        self.stack = RecurrentStack(
            settings.cell,
            settings.embedding + more,
            settings.hidden,
            settings.decoder_layers,
            dropout=settings.dropout,
        )

    def remember(self, annotations: Tensor, final: Hidden, lengths: Tensor) -> tuple[Tensor, ...]:
        """What is read at every step, from ``annotations [B, S, A]`` and the final states."""
        raise NotImplementedError

    def unroll(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Readouts ``[N, T, D]`` for the target ``embedded [N, T, E]``, and the state after it."""
        raise NotImplementedError


class _FixedVector(RecurrentDecoder):
    """Without attention: s_t = f(s_{t-1}, y_{t-1}, c), p(y_t) = g(y_{t-1}, s_t, c).

    c is the encoder's final state (top layer, directions joined), the same at every step. Sutskever
    et al. 2014, section 2; Cho et al. 2014, section 2.2 (c at every step) and appendix A.1.2 (g is
    a maxout layer).
    """

    def __init__(self, settings: RecurrentSettings, annotation_dim: int) -> None:
        super().__init__(settings, more=annotation_dim)
        self.readout = Maxout(
            [settings.hidden, settings.embedding, annotation_dim], settings.hidden
        )

    def remember(self, annotations: Tensor, final: Hidden, lengths: Tensor) -> tuple[Tensor, ...]:
        return (final[-1][0],)

    def unroll(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        c = state.memory[0].unsqueeze(1)  # [N, 1, A]
        inputs = torch.cat([embedded, c.expand(-1, embedded.shape[1], -1)], dim=-1)
        tops, hidden = self.stack(inputs, state.hidden)
        return self.readout(tops, embedded, c), replace(state, hidden=hidden)


class _AttentiveDecoder(RecurrentDecoder):
    """Base of the decoders with attention; the memory is keys, values and which may be read."""

    attention: Attention

    def remember(self, annotations: Tensor, final: Hidden, lengths: Tensor) -> tuple[Tensor, ...]:
        batch, positions, _ = annotations.shape
        allowed = masks.padding(lengths).dense((batch, 1, positions), annotations.device)
        return (*self.attention.remember(annotations), allowed)

    def _read(self, query: Tensor, state: RecurrentState) -> Tensor:
        """Contexts ``[N, Q, A]`` of the queries ``[N, Q, H]``."""
        key, value, allowed = state.memory
        return self.attention.read(query, Memory(key, value), allowed)


class _Bahdanau(_AttentiveDecoder):
    """Attention from the state before: c_t = Σ_j α(s_{t-1}, h_j) h_j.

    Bahdanau, Cho, Bengio 2015, section 3.1: s_t = f(s_{t-1}, y_{t-1}, c_t) and
    p(y_t) = g(y_{t-1}, s_t, c_t), where g is a maxout layer (appendix A.2.2, which has s_{t-1}
    there). With more than one layer, s is the top one's.
    """

    def __init__(self, settings: RecurrentSettings, annotation_dim: int) -> None:
        super().__init__(settings, more=annotation_dim)
        hidden = settings.hidden
        self.attention = Attention(
            scores.Additive(hidden, annotation_dim, hidden), _normalizer(settings)
        )
        self.readout = Maxout([hidden, settings.embedding, annotation_dim], hidden)

    def unroll(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        steps, hidden = self.stack.steps(embedded), state.hidden
        tops, contexts = [], []
        for _ in range(embedded.shape[1]):
            context = self._read(hidden[-1][0].unsqueeze(1), state).squeeze(1)
            hidden = steps(context, hidden)
            tops.append(hidden[-1][0])
            contexts.append(context)
        readouts = self.readout(torch.stack(tops, 1), embedded, torch.stack(contexts, 1))
        return readouts, replace(state, hidden=hidden)


class _Luong(_AttentiveDecoder):
    """Attention from the present state: h̃_t = tanh(W_c [c_t; h_t]).

    Luong, Pham, Manning 2015, section 3, equation 5 (global attention), and section 3.3 (input
    feeding: the cell reads [y_{t-1}; h̃_{t-1}], with h̃_0 = 0).
    """

    def __init__(self, settings: RecurrentSettings, annotation_dim: int) -> None:
        hidden = settings.hidden
        feeding = bool(settings.input_feeding)
        super().__init__(settings, more=hidden if feeding else 0)
        self.feeding = feeding
        self.attention = Attention(_luong_score(settings, annotation_dim), _normalizer(settings))
        self.combine: nn.Module = glorot_linear(annotation_dim + hidden, hidden, bias=False)

    def unroll(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        if state.feed is None:
            tops, hidden = self.stack(embedded, state.hidden)
            both = torch.cat([self._read(tops, state), tops], dim=-1)
            return torch.tanh(self.combine(both)), replace(state, hidden=hidden)
        rows, count, _ = embedded.shape
        steps, hidden, vector = self.stack.steps(embedded), state.hidden, state.feed
        combine = self._combine(count, rows)
        vectors = []
        for _ in range(count):
            hidden = steps(vector, hidden)
            top = hidden[-1][0]
            context = self._read(top.unsqueeze(1), state).squeeze(1)
            vector = torch.tanh(combine(torch.cat([context, top], dim=-1)))
            vectors.append(vector)
        return torch.stack(vectors, 1), replace(state, hidden=hidden, feed=vector)

    def _combine(self, count: int, rows: int) -> Callable[[Tensor], Tensor]:
        """W_c as it is applied at ``count`` steps, one after the other."""
        if not isinstance(self.combine, nn.Linear):  # in int8: a map as it is
            return self.combine
        weight = self.combine.weight
        return Stepwise(weight, weight.new_zeros(()).expand(count, rows, len(weight)))


def _luong_score(settings: RecurrentSettings, annotation_dim: int) -> scores.Score:
    if settings.attention == "luong-dot":
        return scores.Dot()
    if settings.attention in ("luong-general", "luong-local-p"):
        return scores.General(settings.hidden, annotation_dim)
    return scores.Concat(settings.hidden, annotation_dim, settings.hidden)


def _normalizer(settings: RecurrentSettings) -> normalizers.Normalizer:
    if settings.window is not None:
        return normalizers.LocalPredictive(settings.hidden, settings.hidden, settings.window)
    if settings.temperature is not None:
        return normalizers.GumbelStraightThrough(settings.temperature)
    if settings.expected is not None:
        return normalizers.SampledHard(settings.expected)
    return normalizers.Softmax()


def recurrent_decoder(settings: RecurrentSettings, annotation_dim: int) -> RecurrentDecoder:
    """The decoder of the settings, for annotations of the given width."""
    if settings.attention == "none":
        return _FixedVector(settings, annotation_dim)
    if settings.attention.startswith("luong"):
        return _Luong(settings, annotation_dim)
    return _Bahdanau(settings, annotation_dim)
