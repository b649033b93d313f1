"""The Transformer: encoder and decoder with self-attention.

Vaswani et al. 2017, "Attention Is All You Need". With one shared table of 37,000 symbols the base
size has 63,082,496 parameters; the paper's "65 M" corresponds to a table of about 41,000 rows (see
docs/systems.md).
Shapes: B batch, N rows of search, S source tokens, T target tokens, D width, V vocabulary.
"""

import math
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from heedful.attention import Memory, MultiHeadAttention
from heedful.attention.masks import causal, padding
from heedful.attention.positions import AddedPositions
from heedful.basics.symbols import PAD
from heedful.layers.caches import LayerCaches
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.source_memories import SourceMemories
from heedful.layers.transformer import DecoderLayer, EncoderLayer, build_norm, layer_caches
from heedful.models.pairs import AlignmentSource, PairModel, Source, require_one_vocabulary
from heedful.models.transformer_settings import TransformerSettings

__all__ = ["Transformer", "TransformerSettings", "TransformerState"]

Layer = EncoderLayer | DecoderLayer


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
            if settings.tied_embeddings in ("all", "inputs")
            else token_embedding(source_vocabulary, dim)
        )
        self.output = None
        if settings.tied_embeddings in ("none", "inputs"):
            self.output = nn.Linear(dim, target_vocabulary, bias=False)
            nn.init.normal_(self.output.weight, std=dim**-0.5)
        self.source_positions = self._positions()
        self.target_positions = self._positions()
        options = settings.block_options()
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
        if settings.share_positions:
            for layers in (self.encoder, self.decoder):
                _share_positions(layers)
        self.source_norm = _norm(settings, settings.embedding_norm)
        self.target_norm = _norm(settings, settings.embedding_norm)
        self.encoder_norm = _norm(settings, settings.pre_norm)
        self.decoder_norm = _norm(settings, settings.pre_norm)
        if settings.initialisation == "t5":
            self._initialise_as_t5()
        self.dropout = Dropout(settings.dropout)
        bias = torch.zeros(target_vocabulary) if settings.output_bias else None
        self.register_buffer("bias", bias)

    def _initialise_as_t5(self) -> None:
        """Draw weights as T5 does: normal, with the variance 1 / inputs of each matrix.

        The variance of embeddings is 1. That of query projections is also divided by the width of a
        head, because T5's dot products are not.
        """
        dim = self.settings.hidden_size
        for name, weight in self.named_parameters():
            if name.endswith("embedding.weight"):
                nn.init.normal_(weight)
                nn.init.zeros_(weight[PAD].detach())
            elif name.endswith("positions.table.weight"):
                nn.init.normal_(weight, std=dim**-0.5)
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        for layer in (*self.encoder, *self.decoder):
            for part in layer.modules():
                if isinstance(part, MultiHeadAttention):
                    std = (dim * part.head_dim) ** -0.5
                    nn.init.normal_(part.query_projection.weight, std=std)

    def _positions(self) -> AddedPositions:
        settings = self.settings
        return settings.positions.build_added(settings.hidden_size, settings.max_length)

    def _embed_source(self, tokens: Tensor) -> Tensor:
        """``[B, S] -> [B, S, D]``; the factor √D is from section 3.4."""
        embedded = self.source_positions(self.source_embedding(tokens) * self._scale())
        result: Tensor = self.dropout(self.source_norm(embedded))
        return result

    def _embed_target(self, tokens: Tensor, first: int | Tensor = 0) -> Tensor:
        """As :meth:`_embed_source`, for target tokens at positions ``first, first + 1, …``."""
        embedded = self.target_positions(self.target_embedding(tokens) * self._scale(), first)
        result: Tensor = self.dropout(self.target_norm(embedded))
        return result

    def _scale(self) -> float:
        return math.sqrt(self.settings.hidden_size) if self.settings.scale_embeddings else 1.0

    def _finished(self, hidden: Tensor) -> Tensor:
        """The states ``[.., D]`` that the output matrix reads, from those of the last layer."""
        states: Tensor = self.decoder_norm(hidden)
        return states * self.settings.hidden_size**-0.5 if self.settings.scale_output else states

    def read_source(self, source: Source) -> tuple[Tensor, Tensor]:
        """The encoder's output ``[B, S, D]`` and the mask of the source ``[B, 1, 1, S]``."""
        hidden = self._embed_source(source.tokens)
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
        return self.logits(self._finished(states))

    def decode(self, encoded: Tensor, source_mask: Tensor | None, target_in: Tensor) -> Tensor:
        """The states ``[B, T, D]`` that predict each next token, from :meth:`read_source`."""
        memories = self.memories(encoded)
        hidden = self._embed_target(target_in)
        # Padding is at the end of a target, so the causal mask hides it as well.
        for layer, memory in zip(self.decoder_layers(), memories, strict=True):
            hidden = layer(hidden, causal(), memory, source_mask)
        return self._finished(hidden)

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
        hidden = self._embed_target(tokens.unsqueeze(1), first=place)
        for layer, (memory, mask), cache in zip(
            self.decoder_layers(), state.sources.read(), state.caches, strict=True
        ):
            hidden = layer(hidden, None, memory, mask, cache)
        return self._finished(hidden).squeeze(1), state

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


def _norm(settings: TransformerSettings, present: bool) -> nn.Module:
    return build_norm(settings.block_options()) if present else nn.Identity()


def _share_positions(layers: nn.ModuleList) -> None:
    """Give the self-attention of all layers the positions of the first layer.

    Raises:
        ValueError: a layer has positions of another kind, or none.
    """
    modules = [layer.self_attention for layer in layers if isinstance(layer, Layer)]
    first = getattr(modules[0], "positions", None)
    for module in modules:
        own = getattr(module, "positions", None)
        if first is None or repr(own) != repr(first):
            raise ValueError(
                "model.share_positions = true: all layers need the same relative positions"
            )
        module.positions = first
