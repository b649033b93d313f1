"""The decoders of the recurrent encoder–decoder: without attention, Bahdanau's and Luong's.

Shapes: N rows (a batch, or those of a search), S source positions, T target positions, E embedding,
H hidden, D = H the readout's width, A an annotation's width (H, or 2·H with two directions).
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import Memory, RecurrentAttention, scores
from heedful.attention.recurrent import AttentionState
from heedful.kernels.recurrent_input_feeding import InputFeedingWeights, input_feeding_loop
from heedful.kernels.recurrent_unrolled import unrolled
from heedful.layers.recurrent import Hidden, Maxout, RecurrentStack, glorot_linear
from heedful.layers.stepwise import Stepwise
from heedful.models.recurrent_attention import keys_and_values, known_reading, read_rows
from heedful.models.recurrent_mechanism import AnyAttention, Reading
from heedful.models.recurrent_rows import SourceRows
from heedful.models.recurrent_settings import RecurrentDecoderSettings


@dataclass(frozen=True)
class RecurrentState:
    """The state of decoding for N rows of A sources."""

    hidden: Hidden
    """Each decoder layer's state."""
    memory: tuple[Tensor, ...]
    """Tensors of the sources that are read at every step; their first dimension is A."""
    rows: SourceRows
    """The source of each row."""
    feed: Tensor | None = None
    """The attentional vector of the previous step ``[N, H]``, with input feeding."""
    attending: AttentionState | None = None
    """What an attention carries that reads the weights of earlier steps."""

    def select(self, rows: Tensor) -> "RecurrentState":
        """The state of ``rows [M]``, in this order; rows can be repeated or omitted.

        The memory is not copied; sources without rows are removed occasionally.
        """
        after, left = self.rows.select(rows)
        return RecurrentState(
            hidden=tuple(_select(layer, rows) for layer in self.hidden),
            memory=self.memory if left is None else _select(self.memory, left),
            rows=after,
            feed=None if self.feed is None else self.feed.index_select(0, rows),
            attending=None if self.attending is None else self.attending.select(rows),
        )


def _select(parts: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(part.index_select(0, rows) for part in parts)


class RecurrentDecoder(nn.Module):
    """Base of the decoders; the input of ``stack`` is ``[embedding; more]`` at every step.

    There are two implementations on the same weights: :meth:`unroll`, if all target tokens are
    known, and :meth:`step`, one token per row, on a memory from :meth:`prepare`.
    """

    feeding = False
    """Whether a step reads the attentional vector of the previous one."""

    def __init__(self, settings: RecurrentDecoderSettings, more: int) -> None:
        super().__init__()
        self.embedding = settings.embedding_size
        self.stack = RecurrentStack(
            settings.cell,
            settings.embedding_size + more,
            settings.hidden_size,
            settings.decoder_layers,
            dropout=settings.dropout,
        )

    def remember(self, annotations: Tensor, final: Hidden, lengths: Tensor) -> tuple[Tensor, ...]:
        """The memory of all steps, from ``annotations [B, S, A]`` and the final states."""
        raise NotImplementedError

    def attending(self, memory: tuple[Tensor, ...]) -> AttentionState | None:
        """The attention's state before the first step; None if it has none."""
        return None

    def unroll(self, embedded: Tensor, state: RecurrentState) -> Tensor:
        """Readouts ``[B, T, D]`` for the target ``embedded [B, T, E]``, one row per source."""
        raise NotImplementedError

    def prepare(self, memory: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The memory for :meth:`step`, after all computations that do not depend on the step."""
        return memory

    def step(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Readouts ``[N, D]`` for the last tokens ``embedded [N, E]``, and the state after them."""
        raise NotImplementedError

    def _input_weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """W_ih of the lowest layer for the embedding and for the rest of the input; its bias."""
        weight, bias = self.stack.weights("ih", 0)
        return weight[:, : self.embedding], weight[:, self.embedding :], bias


class _Reader(RecurrentDecoder):
    """Base of the decoders with attention."""

    attention: AnyAttention
    linear: bool
    """Whether contexts are weighted sums of the annotations themselves."""

    def attending(self, memory: tuple[Tensor, ...]) -> AttentionState | None:
        if not isinstance(self.attention, RecurrentAttention):
            return None
        return self.attention.start(Memory(*memory[:2]))

    def _read(
        self, query: Tensor, state: RecurrentState, attending: AttentionState | None
    ) -> tuple[Tensor, AttentionState | None]:
        """Contexts ``[N, A]`` of one query per row ``[N, H]``, and the attention's next state."""
        if not isinstance(self.attention, RecurrentAttention):
            return read_rows(self.attention, query, state.rows, state.memory), None
        assert attending is not None
        rows, attention = state.rows, self.attention
        if rows.alone or attention.watched_at_all:  # watchers see one entry for each row
            key, value, allowed = (rows.copied(part) for part in state.memory)
            return attention.step(query, Memory(key, value), attending, allowed)
        key, value, allowed = (part.unsqueeze(1) for part in state.memory)
        grouped = attending.changed(rows.spread)
        context, after = attention.step(rows.spread(query), Memory(key, value), grouped, allowed)
        return rows.collect(context), after.changed(rows.collect)


class _DeepOutput(RecurrentDecoder):
    """Base of the decoders whose cell and maxout readout read the same context c_t.

    Both apply a linear map to c_t first, and c_t is a weighted sum of annotations. In single steps,
    W c and U c (for gates and readout, concatenated) are therefore summed instead of c.
    """

    readout: Maxout

    def _shares(self, context: Tensor) -> Tensor:
        """W c and U c ``[.., G·H + 2·D]`` of ``context [.., A]``."""
        gates = F.linear(context, self._input_weights()[1])
        return torch.cat([gates, self.readout.maps[2](context)], dim=-1)

    def _read_shares(self, state: RecurrentState) -> tuple[Tensor, AttentionState | None]:
        """W c_t and U c_t ``[N, G·H + 2·D]`` of each row, and the attention's next state."""
        raise NotImplementedError

    def step(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        weight, _, bias = self._input_weights()
        shares, attending = self._read_shares(state)
        gates, late = shares.tensor_split([len(weight)], dim=-1)
        hidden = self.stack.step(F.linear(embedded, weight, bias) + gates, state.hidden)
        readout: Tensor = self.readout(hidden[-1][0], embedded, known=late)
        return readout, replace(state, hidden=hidden, attending=attending)


class _FixedVector(_DeepOutput):
    """Without attention: s_t = f(s_{t-1}, y_{t-1}, c), p(y_t) = g(y_{t-1}, s_t, c).

    c is the encoder's final state (top layer, directions joined), the same at every step. Sutskever
    et al. 2014, section 2; Cho et al. 2014, section 2.2 (c at every step) and appendix A.1.2 (g is
    a maxout layer).
    """

    def __init__(self, settings: RecurrentDecoderSettings, annotation_dim: int) -> None:
        super().__init__(settings, more=annotation_dim)
        self.readout = _maxout(settings, annotation_dim)

    def remember(self, annotations: Tensor, final: Hidden, lengths: Tensor) -> tuple[Tensor, ...]:
        return (final[-1][0],)

    def unroll(self, embedded: Tensor, state: RecurrentState) -> Tensor:
        c = state.memory[0].unsqueeze(1)  # [B, 1, A]
        inputs = torch.cat([embedded, c.expand(-1, embedded.shape[1], -1)], dim=-1)
        readouts: Tensor = self.readout(self.stack(inputs, state.hidden)[0], embedded, c)
        return readouts

    def prepare(self, memory: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (self._shares(memory[0]),)

    def _read_shares(self, state: RecurrentState) -> tuple[Tensor, AttentionState | None]:
        return state.rows.copied(state.memory[0]), None


class _Bahdanau(_Reader, _DeepOutput):
    """Attention from the previous state: c_t = Σ_j α(s_{t-1}, h_j) h_j.

    Bahdanau, Cho, Bengio 2015, section 3.1: s_t = f(s_{t-1}, y_{t-1}, c_t) and
    p(y_t) = g(y_{t-1}, s_t, c_t), where g is a maxout layer (appendix A.2.2, which has s_{t-1}
    there). With more than one layer, s is the top one's. A gate multiplies c_t by
    σ(w · s_{t-1} + b) (Xu et al. 2015, "Show, Attend and Tell", section 4.2.1).
    """

    def __init__(self, settings: RecurrentDecoderSettings, annotation_dim: int) -> None:
        width = context_width(settings, annotation_dim)
        super().__init__(settings, more=width)
        self.attention, _, self.linear = _reading(settings, annotation_dim)
        self.readout = _maxout(settings, width)
        self.context_gate: nn.Linear | None = None
        if settings.context_gate:
            self.context_gate = nn.Linear(settings.hidden_size, 1)

    def remember(self, annotations: Tensor, final: Hidden, lengths: Tensor) -> tuple[Tensor, ...]:
        return keys_and_values(self.attention, annotations, lengths)

    def unroll(self, embedded: Tensor, state: RecurrentState) -> Tensor:
        words = embedded.transpose(0, 1).contiguous()  # [T, B, E]
        found = self._in_one(words, state)
        tops, contexts = self._by_steps(words, state) if found is None else found
        readouts: Tensor = self.readout(tops, words, contexts)
        return readouts.transpose(0, 1).contiguous()

    def _by_steps(self, words: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor]:
        """States ``[T, B, H]`` and contexts ``[T, B, A]`` of the target ``words [T, B, E]``."""
        steps, hidden = self.stack.steps(words.transpose(0, 1)), state.hidden
        tops, contexts, attending = [], [], state.attending
        for _ in words:
            context, attending = self._read(hidden[-1][0], state, attending)
            context = self._gated(context, hidden[-1][0])
            hidden = steps(context, hidden)
            tops.append(hidden[-1][0])
            contexts.append(context)
        return torch.stack(tops), torch.stack(contexts)

    def _gated(self, context: Tensor, hidden: Tensor) -> Tensor:
        """A context, or a linear function of it, times the gate of the state ``hidden [N, H]``."""
        if self.context_gate is None:
            return context
        return torch.sigmoid(self.context_gate(hidden)) * context

    def _in_one(self, words: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor] | None:
        """The same in one operator; None if it is not available."""
        if isinstance(self.attention, RecurrentAttention) or self.context_gate is not None:
            return None
        score, alone = self.attention.score, state.rows.alone and len(state.hidden) == 1
        if type(score) is not scores.Additive or not alone:
            return None
        asking = score.query_projection
        if type(asking) is not nn.Linear or asking._forward_hooks or asking._forward_pre_hooks:
            return None
        known = known_reading(self.attention, words.shape[-1])
        if known is None:
            return None
        by_word, by_context, bias = self._input_weights()
        return unrolled(
            self.stack.cell,
            known.scale,
            words,
            state.hidden[0],
            state.memory,
            (by_word, bias),
            (by_context, *self.stack.weights("hh", 0), asking.weight, score.v),
        )

    def prepare(self, memory: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        key, value, allowed = memory
        return (key, self._shares(value), allowed) if self.linear else memory

    def _read_shares(self, state: RecurrentState) -> tuple[Tensor, AttentionState | None]:
        top = state.hidden[-1][0]
        read, attending = self._read(top, state, state.attending)
        return self._gated(read if self.linear else self._shares(read), top), attending


class _Luong(_Reader):
    """Attention from the current state: h̃_t = tanh(W_c [c_t; h_t]).

    Luong, Pham, Manning 2015, section 3, equation 5 (global attention), and section 3.3 (input
    feeding: the cell reads [y_{t-1}; h̃_{t-1}], with h̃_0 = 0). W_c is multiplied with the
    annotations once, because c_t is a weighted sum of them.
    """

    def __init__(self, settings: RecurrentDecoderSettings, annotation_dim: int) -> None:
        hidden = settings.hidden_size
        feeding = bool(settings.input_feeding)
        super().__init__(settings, more=hidden if feeding else 0)
        self.feeding = feeding
        self.attention, width, self.linear = _reading(settings, annotation_dim)
        self.combine = glorot_linear(width + hidden, hidden, bias=False)

    def remember(self, annotations: Tensor, final: Hidden, lengths: Tensor) -> tuple[Tensor, ...]:
        key, value, allowed = keys_and_values(self.attention, annotations, lengths)
        return key, self._of_contexts(value) if self.linear else value, allowed

    def _of_contexts(self, contexts: Tensor) -> Tensor:
        """The share of contexts ``[.., A]`` in W_c ``[.., H]``."""
        return F.linear(contexts, self.combine.weight[:, : contexts.shape[-1]])

    def _share(
        self, top: Tensor, state: RecurrentState, attending: AttentionState | None
    ) -> tuple[Tensor, AttentionState | None]:
        """The share ``[N, H]`` of the contexts of one query per row ``[N, H]``."""
        read, after = self._read(top, state, attending)
        return (read if self.linear else self._of_contexts(read)), after

    def unroll(self, embedded: Tensor, state: RecurrentState) -> Tensor:
        by_top = self.combine.weight[:, -self.stack.network.hidden_size :]
        if state.feed is None:
            tops, _ = self.stack(embedded, state.hidden)
            key, value, allowed = state.memory
            contexts = self.attention.read(tops, Memory(key, value), allowed)
            if not self.linear:
                contexts = self._of_contexts(contexts)
            return torch.tanh(contexts + F.linear(tops, by_top))
        found = self._in_one(embedded, state, state.feed)
        if found is not None:
            return found.transpose(0, 1).contiguous()
        rows, count, _ = embedded.shape
        steps, hidden, vector = self.stack.steps(embedded), state.hidden, state.feed
        combine = Stepwise(by_top, by_top.new_zeros(()).expand(count, rows, len(by_top)))
        vectors, attending = [], state.attending
        for _ in range(count):
            hidden = steps(vector, hidden)
            top = hidden[-1][0]
            share, attending = self._share(top, state, attending)
            vector = torch.tanh(combine(top) + share)
            vectors.append(vector)
        return torch.stack(vectors, 1)

    def _in_one(self, embedded: Tensor, state: RecurrentState, feed: Tensor) -> Tensor | None:
        """Attentional vectors ``[T, B, H]`` in one operator; None if it is not available."""
        if isinstance(self.attention, RecurrentAttention):
            return None
        score = self.attention.score
        alone = state.rows.alone and len(state.hidden) == 1
        if not alone:
            return None
        if type(score) is scores.Concat:
            by_query = score.weight[:, : score.query_dim]
        elif type(score) in (scores.Dot, scores.General):
            by_query = None
        else:
            return None
        known = known_reading(self.attention, feed.shape[1])
        if known is None:
            return None
        by_word, by_feed, bias = self._input_weights()
        by_top = self.combine.weight[:, -feed.shape[1] :]
        return input_feeding_loop(
            self.stack.cell,
            known.scale,
            embedded.transpose(0, 1),
            feed,
            state.hidden[0],
            state.memory,
            (by_word, bias),
            InputFeedingWeights(
                by_feed, *self.stack.weights("hh", 0), by_top, by_query, known.vector
            ),
        )

    def step(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        weight, by_feed, bias = self._input_weights()
        gates = F.linear(embedded, weight, bias)
        if state.feed is not None:
            gates = gates + F.linear(state.feed, by_feed)
        hidden = self.stack.step(gates, state.hidden)
        top = hidden[-1][0]
        own = F.linear(top, self.combine.weight[:, -top.shape[-1] :])
        share, attending = self._share(top, state, state.attending)
        vector = torch.tanh(own + share)
        feed = None if state.feed is None else vector
        return vector, replace(state, hidden=hidden, feed=feed, attending=attending)


def _maxout(settings: RecurrentDecoderSettings, annotation_dim: int) -> Maxout:
    return Maxout(
        [settings.hidden_size, settings.embedding_size, annotation_dim], settings.hidden_size
    )


def _reading(settings: RecurrentDecoderSettings, annotation_dim: int) -> Reading:
    return settings.mechanism.build_reading(
        settings.hidden_size, annotation_dim, settings.max_length
    )


def context_width(settings: RecurrentDecoderSettings, annotation_dim: int) -> int:
    """Width of the contexts."""
    with torch.device("meta"):
        return _reading(settings, annotation_dim).width


def recurrent_decoder(settings: RecurrentDecoderSettings, annotation_dim: int) -> RecurrentDecoder:
    """The decoder of the settings, for annotations of the given width."""
    if settings.attention.name == "none":
        return _FixedVector(settings, annotation_dim)
    if settings.attention.after_the_cell:
        return _Luong(settings, annotation_dim)
    return _Bahdanau(settings, annotation_dim)
