"""The Transformer: encoder and decoder with self-attention.

Vaswani et al. 2017, "Attention Is All You Need". With one shared table of 37,000 symbols the base
size has 63,082,496 parameters; the paper's "65 M" corresponds to a table of about 41,000 rows (see
docs/systems.md).
Shapes: B batch, N rows of search, S source tokens, T target tokens, D width, V vocabulary.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention import Memory
from heedful.attention.masks import causal, padding
from heedful.attention.positions import AddedPositions, PositionSettings
from heedful.attention.settings import AttentionSettings, Role
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.caches import LayerCaches
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.source_memories import SourceMemories
from heedful.layers.transformer import (
    Activation,
    BlockOptions,
    DecoderLayer,
    EncoderLayer,
    layer_caches,
)
from heedful.models.attention_settings import PairAttentionSettings, check_layers, without_added
from heedful.models.pairs import AlignmentSource, PairModel, Source, require_one_vocabulary
from heedful.models.registry import PairSettings

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 4, "hidden_size": 128, "ffn_size": 256, "heads": 4},
    "base": {"layers": 6, "hidden_size": 512, "ffn_size": 2048, "heads": 8},
    "big": {"layers": 6, "hidden_size": 1024, "ffn_size": 4096, "heads": 16},
}


_ROLES: dict[Literal["encoder", "decoder", "cross"], Role] = {
    "encoder": "self",
    "decoder": "causal",
    "cross": "cross",
}


class TransformerSettings(PairSettings):
    """Sizes and options of a Transformer; ``size`` sets the other defaults."""

    renamed: ClassVar[dict[str, str]] = {
        "dim": "hidden_size",
        "inner": "ffn_size",
        "inner_dropout": "ffn_dropout",
        "decoder_inner": "decoder_ffn_size",
        "scaled": "scale_embeddings",
        "tied": "tied_embeddings",
    }
    kind: Literal["transformer"] = "transformer"
    size: Literal["tiny", "base", "big"] | None = None
    layers: int = Field(ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(ge=2, le=MOST_WIDTH, multiple_of=2)
    ffn_size: int = Field(ge=1, le=MOST_WIDTH)
    heads: int = Field(ge=1, le=MOST_WIDTH)
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    ffn_dropout: float = Field(0.0, ge=0, lt=1)
    pre_norm: bool = False
    positions: PositionSettings = PositionSettings.model_validate("sinusoidal")
    tied_embeddings: Literal["all", "output", "none"] = "all"
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    activation: Activation = "relu"
    scale_embeddings: bool = True
    """Whether embeddings are multiplied by √hidden_size, as in the paper."""
    output_bias: bool = False
    """Whether logits have a fixed bias that is not trained; zeros unless loaded."""
    decoder_layers: int | None = Field(None, ge=1, le=MOST_LAYERS)
    """``layers`` by default; the next two settings likewise."""
    decoder_ffn_size: int | None = Field(None, ge=1, le=MOST_WIDTH)
    decoder_heads: int | None = Field(None, ge=1, le=MOST_WIDTH)
    attention: PairAttentionSettings = PairAttentionSettings()
    copy_source: Literal[False, True, "only"] = False
    """Whether tokens of the source can be copied (:mod:`heedful.models.copying`), or are the only
    outputs (:mod:`heedful.models.pointing`)."""

    @property
    def needs_one_vocabulary(self) -> bool:
        return bool(self.copy_source) or super().needs_one_vocabulary

    @model_validator(mode="before")
    @classmethod
    def _fill_from_size(cls, given: Any) -> Any:
        if isinstance(given, dict):
            given = without_added(given)
            size = given.get("size") or ("tiny" if "layers" not in given else None)
            if size in SIZES:
                return {**SIZES[size], **given, "size": _size_if_true(size, given)}
        return given

    @model_validator(mode="after")
    def _heads_divide_dim(self) -> "TransformerSettings":
        for heads in (self.heads, self.decoder_heads):
            if heads is not None and self.hidden_size % heads:
                raise ValueError(
                    f"hidden_size {self.hidden_size} is not a multiple of heads {heads}"
                )
        if self.copy_source == "only" and self.tied_embeddings == "none":
            raise ValueError(
                "copy_source = 'only' has no output matrix that could be of its own: set "
                "tied_embeddings = 'all' or 'output'"
            )
        for part, role in _ROLES.items():
            check_layers(self.attention_of(part), self.hidden_size, role, self.max_length)
        return self

    def attention_of(self, part: Literal["encoder", "decoder", "cross"]) -> list[AttentionSettings]:
        """The attention of each layer of a part."""
        own = AttentionSettings(
            heads=self.heads if part == "encoder" else self.decoder_heads or self.heads,
            dropout=self.attention_dropout,
            positions=self.positions if self.positions.relative else None,
        )
        layers = self.layers if part == "encoder" else self.decoder_layers or self.layers
        return self.attention.of_part(part, [own] * layers)


def _size_if_true(size: str, given: dict[str, Any]) -> str | None:
    """The name of the size, or None if some of its values are overridden.

    Raises:
        ValueError: all of its values are given and one contradicts it.
    """
    other = [key for key, number in SIZES[size].items() if given.get(key, number) != number]
    if other and SIZES[size].keys() <= given.keys():
        raise ValueError(
            f"size '{size}' and {other[0]} = {given[other[0]]} contradict each other; leave one "
            "of them out"
        )
    return None if other else size


@dataclass
class TransformerState:
    """The state of decoding, one row per hypothesis; sources are stored once."""

    caches: LayerCaches
    sources: SourceMemories

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order."""
        return replace(self, caches=self.caches.select(rows), sources=self.sources.select(rows))


S = TypeVar("S", bound=TransformerState)


class Transformer(PairModel):
    """Encoder–decoder Transformer over two vocabularies, or one shared by both.

    Args:
        settings: sizes and options.
        source_vocabulary: number of source symbols.
        target_vocabulary: number of target symbols.

    Raises:
        ValueError: all embeddings are tied, but the vocabularies differ in size.
    """

    bias: Tensor | None

    def __init__(
        self, settings: TransformerSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        require_one_vocabulary(settings.tied_embeddings, source_vocabulary, target_vocabulary)
        self.settings = settings
        self.max_length = settings.max_length
        dim = settings.hidden_size
        self.target_embedding = token_embedding(target_vocabulary, dim)
        self.source_embedding = (
            self.target_embedding
            if settings.tied_embeddings == "all"
            else token_embedding(source_vocabulary, dim)
        )
        self.output = None
        if settings.tied_embeddings == "none":
            self.output = nn.Linear(dim, target_vocabulary, bias=False)
            nn.init.normal_(self.output.weight, std=dim**-0.5)
        self.source_positions = self._positions()
        self.target_positions = self._positions()
        options = BlockOptions(
            dim,
            settings.ffn_size,
            settings.dropout,
            settings.ffn_dropout,
            settings.pre_norm,
            settings.activation,
        )
        of_decoder = options._replace(inner=settings.decoder_ffn_size or settings.ffn_size)
        self.encoder = nn.ModuleList(
            EncoderLayer(options, own, number=number)
            for number, own in enumerate(settings.attention_of("encoder"), 1)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(of_decoder, own, cross, number=number)
            for number, (own, cross) in enumerate(
                zip(settings.attention_of("decoder"), settings.attention_of("cross"), strict=True),
                1,
            )
        )
        self.encoder_norm = nn.LayerNorm(dim) if settings.pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(dim) if settings.pre_norm else nn.Identity()
        self.dropout = Dropout(settings.dropout)
        bias = torch.zeros(target_vocabulary) if settings.output_bias else None
        self.register_buffer("bias", bias)

    def _positions(self) -> AddedPositions:
        settings = self.settings
        return settings.positions.build_added(settings.hidden_size, settings.max_length)

    def _embed(
        self, tokens: Tensor, table: nn.Embedding, positions: nn.Module, first: int | Tensor = 0
    ) -> Tensor:
        """``[B, L] -> [B, L, D]``; the factor √D is from section 3.4."""
        scale = math.sqrt(self.settings.hidden_size) if self.settings.scale_embeddings else 1.0
        embedded: Tensor = self.dropout(positions(table(tokens) * scale, first))
        return embedded

    def read_source(self, source: Source) -> tuple[Tensor, Tensor]:
        """The encoder's output ``[B, S, D]`` and the mask of the source ``[B, 1, 1, S]``."""
        hidden = self._embed(source.tokens, self.source_embedding, self.source_positions)
        batch, length = source.tokens.shape
        mask = padding(source.lengths).dense((batch, 1, 1, length), hidden.device)
        return self.encode_vectors(hidden, mask), mask

    def encode_vectors(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """The encoder's output ``[B, S, D]`` for vectors ``[B, S, D]``.

        Args:
            hidden: what the first layer reads.
            mask: which vectors exist, ``[B, 1, 1, S]``; None for all.
        """
        for layer in self.encoder:
            hidden = layer(hidden, mask)
        encoded: Tensor = self.encoder_norm(hidden)
        return encoded

    def memories(self, encoded: Tensor) -> list[Memory]:
        """Each decoder layer's memory of the encoder's output."""
        return [layer.cross_attention.remember(encoded) for layer in self.decoder_layers()]

    def encode(self, source: Source) -> tuple[list[Memory], Tensor]:
        """Each decoder layer's memory of the source, and its mask ``[B, 1, 1, S]``."""
        encoded, mask = self.read_source(source)
        return self.memories(encoded), mask

    def decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        return self.decode(*self.read_source(source), target_in)

    def layer_states(self) -> list[str]:
        return [f"decoder.{number}" for number in range(len(self.decoder))]

    def read_layer(self, states: Tensor) -> Tensor:
        return self.logits(self.decoder_norm(states))

    def decode(self, encoded: Tensor, source_mask: Tensor | None, target_in: Tensor) -> Tensor:
        """The states ``[B, T, D]`` that predict each next token, from :meth:`read_source`."""
        memories = self.memories(encoded)
        hidden = self._embed(target_in, self.target_embedding, self.target_positions)
        # Padding is at the end of a target, so the causal mask hides it as well.
        for layer, memory in zip(self.decoder_layers(), memories, strict=True):
            hidden = layer(hidden, causal(), memory, source_mask)
        result: Tensor = self.decoder_norm(hidden)
        return result

    @property
    def output_table(self) -> Tensor:
        return self.target_embedding.weight if self.output is None else self.output.weight

    @property
    def output_bias(self) -> Tensor | None:
        return self.bias

    def start(self, source: Source, *, in_place: bool = False) -> TransformerState:
        """The state of decoding before the first step, one row per source.

        Args:
            source: the sources.
            in_place: see :class:`heedful.layers.caches.LayerCaches`.
        """
        encoded, _ = self.read_source(source)
        return self.begin(encoded, source.lengths, in_place=in_place)

    def begin(
        self, encoded: Tensor, lengths: Tensor, *, in_place: bool = False
    ) -> TransformerState:
        """The state of decoding before the first step.

        Args:
            encoded: the encoder's output ``[B, S, D]``.
            lengths: its lengths ``[B]``.
            in_place: see :meth:`start`.
        """
        caches = layer_caches(self.decoder_layers(), len(lengths), in_place=in_place)
        sources = SourceMemories(self.memories(encoded), lengths, in_place=in_place)
        return TransformerState(caches, sources)

    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        states, after = self.advance(tokens, state)
        return self.logits(states), after

    def advance(self, tokens: Tensor, state: S) -> tuple[Tensor, S]:
        """States ``[N, D]`` after the last ``tokens [N]``, and the state after them."""
        place = state.caches.position
        hidden = self._embed(
            tokens.unsqueeze(1), self.target_embedding, self.target_positions, first=place
        )
        for layer, (memory, mask), cache in zip(
            self.decoder_layers(), state.sources.read(), state.caches, strict=True
        ):
            hidden = layer(hidden, None, memory, mask, cache)
        return self.decoder_norm(hidden).squeeze(1), state

    @property
    def alignment(self) -> AlignmentSource:
        """All heads of the penultimate layer (the last of two), where the word is predicted."""
        layers = len(self.decoder)
        layer = layers - 2 if layers > 2 else layers - 1
        return AlignmentSource(f"decoder.{layer}.cross_attention", heads=None, shift=0)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        axes = {}
        for layer in range(len(self.encoder)):
            axes[f"encoder.{layer}.self_attention"] = ("source", "source")
        for layer in range(len(self.decoder)):
            axes[f"decoder.{layer}.self_attention"] = ("target", "target")
            axes[f"decoder.{layer}.cross_attention"] = ("target", "source")
        return axes
