"""The recurrent encoder–decoder, without attention and with Bahdanau's or Luong's.

Shapes: B batch, N rows of search, S source tokens, T target tokens, E embedding, H hidden, D = H
the readout's width, A an annotation's width (H, or 2·H with two directions), V vocabulary.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from heedful.attention import Attention, Memory, masks, scores
from heedful.basics.errors import UserError
from heedful.basics.settings import Settings
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.recurrent import (
    Bridge,
    Hidden,
    Maxout,
    RecurrentEncoder,
    RecurrentStack,
    glorot_linear,
)
from heedful.models.pairs import AlignmentSource, PairModel, Source, State

AttentionName = Literal["none", "bahdanau", "luong-dot", "luong-general", "luong-concat"]


class RecurrentSettings(Settings):
    """The shape of a recurrent encoder–decoder."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["rnn", "gru", "lstm"] = "gru"
    embedding: int = Field(256, ge=1)
    """Width of the embeddings, on both sides."""
    hidden: int = Field(256, ge=1)
    """Width of a layer's state, in each direction, of encoder and decoder."""
    encoder_layers: int = Field(1, ge=1)
    decoder_layers: int = Field(1, ge=1)
    bidirectional: bool = True
    """Whether the encoder reads in both directions."""
    attention: AttentionName = "bahdanau"
    input_feeding: bool | None = None
    """Luong only: whether an attentional vector is part of the next step's input; so unless said.
    None with attention of any other kind."""
    dropout: float = Field(0.2, ge=0.0, lt=1.0)
    tied: Literal["all", "output", "none"] = "none"
    """Which matrices are one: source embedding, target embedding and output ("all"), the last two
    ("output"), or none."""
    max_length: int = Field(512, ge=2)
    """Longest sequence in tokens, END included, on either side."""

    @field_validator("attention")
    @classmethod
    def _comparable(cls, attention: str, info: ValidationInfo) -> str:
        if attention == "luong-dot" and info.data.get("bidirectional"):
            raise ValueError(
                "a dot product needs equal widths, and two directions joined are twice as wide as "
                "the decoder; use luong-general, or bidirectional = false"
            )
        return attention

    @field_validator("input_feeding")
    @classmethod
    def _feedable(cls, input_feeding: bool | None, info: ValidationInfo) -> bool | None:
        attention = info.data.get("attention", "luong")
        if attention.startswith("luong"):
            return input_feeding is not False
        if input_feeding is not None:
            raise ValueError(
                f"input feeding is a part of Luong's attention alone; with attention = "
                f"'{attention}', leave the key out"
            )
        return None

    @field_validator("tied")
    @classmethod
    def _tieable(cls, tied: str, info: ValidationInfo) -> str:
        embedding, hidden = info.data.get("embedding"), info.data.get("hidden")
        if tied != "none" and embedding != hidden:
            raise ValueError(
                f"embeddings and output can be one only if embedding and hidden are equal, not "
                f"{embedding} and {hidden}; make them equal, or tied = 'none'"
            )
        return tied


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


class _Decoder(nn.Module):
    """Base of the three decoders; ``stack`` reads ``[embedding; more]`` at every step."""

    def __init__(self, settings: RecurrentSettings, more: int) -> None:
        super().__init__()
        self.embedding = settings.embedding
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

    def unroll(self, embedded: Tensor, state: RecurrentState) -> Tensor:
        """Readouts ``[B, T, D]`` for the target ``embedded [B, T, E]``."""
        raise NotImplementedError

    def step(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """The readout ``[N, D]`` after one token ``embedded [N, E]``, and the state after it."""
        raise NotImplementedError


class _FixedVector(_Decoder):
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

    def unroll(self, embedded: Tensor, state: RecurrentState) -> Tensor:
        c = state.memory[0].unsqueeze(1)  # [B, 1, A]
        inputs = torch.cat([embedded, c.expand(-1, embedded.shape[1], -1)], dim=-1)
        readout: Tensor = self.readout(self.stack(inputs, state.hidden), embedded, c)
        return readout

    def step(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        c = state.memory[0]
        gates = self.stack.project(embedded) + self.stack.project(c, first=self.embedding)
        hidden = self.stack.step(gates, state.hidden)
        return self.readout(hidden[-1][0], embedded, c), replace(state, hidden=hidden)


class _AttentiveDecoder(_Decoder):
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
        self.attention = Attention(scores.Additive(hidden, annotation_dim, hidden))
        self.readout = Maxout([hidden, settings.embedding, annotation_dim], hidden)

    def unroll(self, embedded: Tensor, state: RecurrentState) -> Tensor:
        tops, contexts = [], []
        for gates in self.stack.project(embedded).unbind(1):
            state, context = self._advance(gates, state)
            tops.append(state.hidden[-1][0])
            contexts.append(context)
        readout: Tensor = self.readout(torch.stack(tops, 1), embedded, torch.stack(contexts, 1))
        return readout

    def step(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        state, context = self._advance(self.stack.project(embedded), state)
        return self.readout(state.hidden[-1][0], embedded, context), state

    def _advance(self, gates: Tensor, state: RecurrentState) -> tuple[RecurrentState, Tensor]:
        context = self._read(state.hidden[-1][0].unsqueeze(1), state).squeeze(1)
        gates = gates + self.stack.project(context, first=self.embedding)
        return replace(state, hidden=self.stack.step(gates, state.hidden)), context


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
        self.attention = Attention(_luong_score(settings, annotation_dim))
        self.combine = glorot_linear(annotation_dim + hidden, hidden, bias=False)

    def unroll(self, embedded: Tensor, state: RecurrentState) -> Tensor:
        if not self.feeding:
            return self._vector(self.stack(embedded, state.hidden), state)
        vectors = []
        for gates in self.stack.project(embedded).unbind(1):
            vector, state = self._advance(gates, state)
            vectors.append(vector)
        return torch.stack(vectors, 1)

    def step(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        return self._advance(self.stack.project(embedded), state)

    def _advance(self, gates: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        if state.feed is not None:
            gates = gates + self.stack.project(state.feed, first=self.embedding)
        hidden = self.stack.step(gates, state.hidden)
        vector = self._vector(hidden[-1][0].unsqueeze(1), state).squeeze(1)
        return vector, replace(state, hidden=hidden, feed=vector if self.feeding else None)

    def _vector(self, top: Tensor, state: RecurrentState) -> Tensor:
        """h̃ ``[N, Q, H]`` of the states ``[N, Q, H]``."""
        context = self._read(top, state)
        return torch.tanh(self.combine(torch.cat([context, top], dim=-1)))


def _luong_score(settings: RecurrentSettings, annotation_dim: int) -> scores.Score:
    if settings.attention == "luong-dot":
        return scores.Dot()
    if settings.attention == "luong-general":
        return scores.General(settings.hidden, annotation_dim)
    return scores.Concat(settings.hidden, annotation_dim, settings.hidden)


_DECODERS = {"none": _FixedVector, "bahdanau": _Bahdanau}


class RecurrentEncoderDecoder(PairModel):
    """Recurrent encoder and decoder with attention none, Bahdanau's or Luong's.

    The decoder starts from the encoder's final state through a bridge where their sizes differ
    (:class:`heedful.layers.recurrent.Bridge`). Dropout falls on the embeddings, between layers and
    on the readout, never on recurrent connections (Zaremba et al. 2014).

    Args:
        settings: the model's shape.
        source_vocabulary: number of symbols of the source.
        target_vocabulary: number of symbols of the target.

    Raises:
        UserError: embeddings of vocabularies that differ in size are to be one.

    Example:
        >>> settings = RecurrentSettings(embedding=8, hidden=8)
        >>> model = RecurrentEncoderDecoder(settings, 50, 60)
        >>> source = Source(torch.tensor([[7, 9, 3]]), torch.tensor([3]))
        >>> model.teacher_force(source, torch.tensor([[2, 8]])).shape
        torch.Size([1, 2, 60])
    """

    def __init__(
        self, settings: RecurrentSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        if settings.tied == "all" and source_vocabulary != target_vocabulary:
            raise UserError(
                f"'tied' = 'all' needs one vocabulary for both sides; they have "
                f"{source_vocabulary} and {target_vocabulary} symbols: use a joint vocabulary or "
                "tied = 'output'"
            )
        self.settings, self.max_length = settings, settings.max_length
        self.drop = Dropout(settings.dropout)
        self.target_embedding = token_embedding(target_vocabulary, settings.embedding)
        self.source_embedding = (
            self.target_embedding
            if settings.tied == "all"
            else token_embedding(source_vocabulary, settings.embedding)
        )
        self.encoder = RecurrentEncoder(
            settings.cell,
            settings.embedding,
            settings.hidden,
            settings.encoder_layers,
            bidirectional=settings.bidirectional,
            dropout=settings.dropout,
        )
        annotation_dim = self.encoder.output_dim
        self.bridge = Bridge(
            settings.cell,
            annotation_dim,
            settings.encoder_layers,
            settings.hidden,
            settings.decoder_layers,
        )
        self.decoder = _DECODERS.get(settings.attention, _Luong)(settings, annotation_dim)
        self.output = None
        if settings.tied == "none":
            self.output = nn.Linear(settings.hidden, target_vocabulary, bias=False)
            nn.init.normal_(self.output.weight, std=settings.hidden**-0.5)

    def start(self, source: Source) -> RecurrentState:
        embedded = self.drop(self.source_embedding(source.tokens))
        annotations, final = self.encoder(embedded, source.lengths)
        hidden = self.bridge(final)
        feed = None
        if self.settings.input_feeding and isinstance(self.decoder, _Luong):
            feed = torch.zeros_like(hidden[-1][0])
        sources = torch.arange(len(source.tokens), device=source.tokens.device)
        memory = self.decoder.remember(annotations, final, source.lengths)
        return RecurrentState(hidden, memory, sources, feed)

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        embedded = self.drop(self.target_embedding(target_in))
        states: Tensor = self.drop(self.decoder.unroll(embedded, self.start(source)))
        return states

    @property
    def output_table(self) -> Tensor:
        return self.target_embedding.weight if self.output is None else self.output.weight

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, RecurrentState]:
        if not isinstance(state, RecurrentState):
            raise TypeError(f"state must be what start or step gave, not {type(state).__name__}")
        embedded = self.drop(self.target_embedding(tokens))
        readout, after = self.decoder.step(embedded, state)
        return self.logits(self.drop(readout)), after

    @property
    def alignment(self) -> AlignmentSource | None:
        if self.settings.attention == "none":
            return None
        return AlignmentSource("decoder.attention", heads=None, shift=0)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        source = self.alignment
        return {source.module: ("target", "source")} if source else {}
