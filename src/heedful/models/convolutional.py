"""Convolutional sequence-to-sequence model: gated convolutions, attention in every decoder layer.

Gehring et al. 2017, "Convolutional Sequence to Sequence Learning".
Shapes: B batch, N rows of a search, S source tokens, T target tokens, E embedding, D hidden,
k kernel, V vocabulary.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention import Memory
from heedful.attention.masks import padding
from heedful.attention.positions import Learned
from heedful.attention.scores import Dot
from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import PAD
from heedful.layers.convolutional import (
    Affine,
    ConvolutionalDecoderLayer,
    ConvolutionalEncoderLayer,
    DecoderMaps,
    NormalisedLinear,
    Sizes,
    SourceMemory,
    scale_gradient,
)
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.models.pairs import AlignmentSource, PairModel, Source, State, require_one_vocabulary
from heedful.models.registry import PairSettings, register_model

_FIRST_STD = 0.1
"""Standard deviation of all embeddings (section 3.5)."""
_HALF = 0.5**0.5
_DOT = AttentionSettings(score=Dot.Settings())
"""The paper's attention (section 3.3)."""


class ConvolutionalSettings(PairSettings):
    """Sizes and options of a convolutional encoder–decoder."""

    renamed: ClassVar[dict[str, str]] = {
        "embedding": "embedding_size",
        "hidden": "hidden_size",
        "kernel": "kernel_size",
        "tied": "tied_embeddings",
    }
    kind: Literal["convolutional"] = "convolutional"
    embedding_size: int = Field(256, ge=1, le=MOST_WIDTH)
    """Width of token and position embeddings, of the encoder's output, and of the states that
    tokens are predicted from."""
    hidden_size: int = Field(256, ge=1, le=MOST_WIDTH)
    """Width of the convolutions' inputs and outputs."""
    encoder_layers: int = Field(4, ge=1, le=MOST_LAYERS)
    decoder_layers: int = Field(3, ge=1, le=MOST_LAYERS)
    kernel_size: int = Field(3, ge=1, le=MOST_POSITIONS)
    """Width of a convolution in positions; in the decoder, the current one and those before."""
    dropout: float = Field(0.2, ge=0.0, lt=1.0)
    """Dropout on the embeddings, the input of each convolution, and the decoder's output."""
    weight_norm: bool = True
    """Whether to use weight normalisation for all matrices except embeddings."""
    tied_embeddings: Literal["all", "output", "none"] = "none"
    """Which matrices are tied: source embedding, target embedding and output ("all"), the last two
    ("output"), or none."""
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest sequence in tokens, END included, on either side."""
    attention: AttentionSettings = AttentionSettings()

    @model_validator(mode="after")
    def _readable(self) -> "ConvolutionalSettings":
        size = self.embedding_size
        with torch.device("meta"):
            own = self.attention.over(_DOT).build_one(size, size, max_length=self.max_length)
        if own.normalize.learns_by_reward:
            raise ValueError("the normalizer is trained by reward; use model.kind = 'recurrent'")
        return self


@dataclass(frozen=True)
class ConvolutionalState:
    """The state of decoding for N rows, and the decoder's normalised weights."""

    past: tuple[Tensor, ...]
    """Each layer's inputs at the last k − 1 positions ``[N, k − 1, D]``."""
    length: int
    """Number of positions so far."""
    source: SourceMemory
    sources: Tensor
    """Index of each row's source ``[N]``."""
    enter: Affine
    layers: tuple[DecoderMaps, ...]
    leave: Affine

    def select(self, rows: Tensor) -> "ConvolutionalState":
        """The state of ``rows [M]``, in this order; rows can be repeated or omitted."""
        sources = self.sources.index_select(0, rows)
        source = self.source
        # Rows that are reordered within their source, as in beam search, keep the memory.
        if sources.shape != self.sources.shape or not torch.equal(sources, self.sources):
            # Layers whose score does not project the keys share them.
            parts = {id(part): part for memory in source.memories for part in memory}
            chosen = {key: part.index_select(0, rows) for key, part in parts.items()}
            memories = (Memory(*(chosen[id(part)] for part in own)) for own in source.memories)
            source = SourceMemory(
                tuple(memories),
                source.allowed.index_select(0, rows),
                source.scale.index_select(0, rows),
            )
        past = tuple(part.index_select(0, rows) for part in self.past)
        return replace(self, past=past, source=source, sources=sources)


class ConvolutionalEncoderDecoder(PairModel):
    """Convolutional encoder and decoder with learned positions.

    All matrices except embeddings and output are weight-normalised unless ``settings.weight_norm``
    is false. The output has no bias.

    Args:
        settings: sizes and options.
        source_vocabulary: number of symbols of the source.
        target_vocabulary: number of symbols of the target.

    Raises:
        ValueError: all embeddings are tied, but the vocabularies differ in size.

    Example:
        >>> settings = ConvolutionalSettings(embedding_size=8, hidden_size=8)
        >>> model = ConvolutionalEncoderDecoder(settings, 50, 60)
        >>> source = Source(torch.tensor([[7, 9, 3]]), torch.tensor([3]))
        >>> model.teacher_force(source, torch.tensor([[2, 8]])).shape
        torch.Size([1, 2, 60])
    """

    def __init__(
        self, settings: ConvolutionalSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        require_one_vocabulary(settings.tied_embeddings, source_vocabulary, target_vocabulary)
        self.settings, self.max_length = settings, settings.max_length
        self.target_embedding = _tokens(target_vocabulary, settings)
        self.source_embedding = (
            self.target_embedding
            if settings.tied_embeddings == "all"
            else _tokens(source_vocabulary, settings)
        )
        self.source_positions, self.target_positions = _positions(settings), _positions(settings)
        self.drop = Dropout(settings.dropout)
        sizes = Sizes(
            settings.embedding_size,
            settings.hidden_size,
            settings.kernel_size,
            settings.dropout,
            settings.weight_norm,
        )
        narrow, wide = settings.embedding_size, settings.hidden_size
        self.encoder_enter = _map(narrow, wide, settings, kept=1 - settings.dropout)
        self.encoder = nn.ModuleList(
            ConvolutionalEncoderLayer(sizes) for _ in range(settings.encoder_layers)
        )
        self.encoder_leave = _map(wide, narrow, settings)
        self.decoder_enter = _map(narrow, wide, settings, kept=1 - settings.dropout)
        self.decoder = nn.ModuleList(
            ConvolutionalDecoderLayer(sizes, settings.attention.over(_DOT))
            for _ in range(settings.decoder_layers)
        )
        self.decoder_leave = _map(wide, narrow, settings)
        self.output = None
        if settings.tied_embeddings == "none":
            self.output = nn.Linear(narrow, target_vocabulary, bias=False)
            nn.init.normal_(
                self.output.weight, std=((1 - settings.dropout) / settings.embedding_size) ** 0.5
            )

    def encode(self, source: Source) -> SourceMemory:
        """The encoder's output for the decoder's layers."""
        embedded = self.drop(self.source_positions(self.source_embedding(source.tokens)))
        batch, length = source.tokens.shape
        allowed = padding(source.lengths).dense((batch, 1, length), embedded.device)
        hidden = self.encoder_enter(embedded)
        real = allowed.transpose(1, 2).to(hidden.dtype)
        for layer in self.encoder:
            hidden = layer(hidden, real)
        # The convolutions receive the mean of the gradients of all attentions (section 3.4).
        keys = scale_gradient(self.encoder_leave(hidden), 1 / len(self.decoder))
        values = ((keys + embedded) * _HALF).to(keys.dtype)
        scale = source.lengths.to(embedded.dtype).sqrt().view(-1, 1, 1)
        memories = (layer.attention.remember(keys, values) for layer in self._decoder_layers())
        return SourceMemory(tuple(memories), allowed, scale)

    def start(self, source: Source) -> ConvolutionalState:
        memory = self.encode(source)
        scale, settings = memory.scale, self.settings
        rows = len(scale)
        nothing = scale.new_zeros(rows, settings.kernel_size - 1, settings.hidden_size)
        return ConvolutionalState(
            past=(nothing,) * len(self.decoder),
            length=0,
            source=memory,
            sources=torch.arange(rows, device=scale.device),
            enter=self.decoder_enter.now(),
            layers=tuple(layer.now() for layer in self._decoder_layers()),
            leave=self.decoder_leave.now(),
        )

    def _decoder_layers(self) -> list[ConvolutionalDecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, ConvolutionalDecoderLayer)]

    def _advance(
        self, tokens: Tensor, state: ConvolutionalState
    ) -> tuple[Tensor, ConvolutionalState]:
        """States ``[N, L, E]`` of the next ``tokens [N, L]``, and the new state of decoding."""
        embedded = self.target_embedding(tokens)
        embedded = self.drop(self.target_positions(embedded, state.length))
        hidden, past = state.enter(embedded), []
        source = state.source
        for layer, before, memory, maps in zip(
            self._decoder_layers(), state.past, source.memories, state.layers, strict=True
        ):
            hidden, after = layer(hidden, embedded, before, memory, source, maps)
            past.append(after)
        length = state.length + tokens.shape[1]
        return self.drop(state.leave(hidden)), replace(state, past=tuple(past), length=length)

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        return self._advance(target_in, self.start(source))[0]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, ConvolutionalState]:
        if not isinstance(state, ConvolutionalState):
            raise TypeError(f"state must come from start or step, not {type(state).__name__}")
        states, after = self._advance(tokens.unsqueeze(1), state)
        return self.logits(states.squeeze(1)), after

    @property
    def output_table(self) -> Tensor:
        return self.target_embedding.weight if self.output is None else self.output.weight

    @property
    def alignment(self) -> AlignmentSource:
        """The attention of the last layer, in the row that predicts the word."""
        return AlignmentSource(f"decoder.{len(self.decoder) - 1}.attention", heads=None, shift=0)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {
            f"decoder.{layer}.attention": ("target", "source") for layer in range(len(self.decoder))
        }


def _tokens(vocabulary: int, settings: ConvolutionalSettings) -> nn.Embedding:
    table = token_embedding(vocabulary, settings.embedding_size)
    nn.init.normal_(table.weight, std=_FIRST_STD)
    nn.init.zeros_(table.weight[PAD].detach())
    return table


def _positions(settings: ConvolutionalSettings) -> Learned:
    positions = Learned(settings.embedding_size, settings.max_length)
    nn.init.normal_(positions.table.weight, std=_FIRST_STD)
    return positions


def _map(
    input_dim: int, output_dim: int, settings: ConvolutionalSettings, *, kept: float = 1.0
) -> NormalisedLinear:
    """A linear map for an input with dropout, which keeps values with probability ``kept``."""
    return NormalisedLinear(input_dim, output_dim, variance=kept, weight_norm=settings.weight_norm)


register_model(ConvolutionalSettings, ConvolutionalEncoderDecoder)
