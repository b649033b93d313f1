"""A Transformer whose encoder and search steps are one kernel call each, if possible."""

import math
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn

from heedful.attention.positions import AddedPositions, Learned, Sinusoidal
from heedful.inference.fusing import cached
from heedful.inference.fusing.decoder import FusedDecoder, fused_decoder
from heedful.inference.fusing.encoder import fused_encoder
from heedful.inference.fusing.program import Embedding
from heedful.kernels.program import Tables
from heedful.layers.source_memories import SourceMemories
from heedful.layers.transformer import EncoderLayer, layer_caches
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer, TransformerState


@dataclass
class FusedTransformerState(TransformerState):
    """The model's state, and the fused form for its next step; None to use the model."""

    fused: FusedDecoder | None = None

    @property
    def can_join(self) -> bool:
        """Whether others may join: if the fused form reads keys and values in place."""
        if self.fused is None or not self.fused.can_step(self.caches.position):
            return False
        return self.caches.can_join and self.sources.can_join

    def join(self, other: Self) -> Self:
        """The state of these rows, followed by others that start now."""
        caches, sources = self.caches.join(other.caches), self.sources.join(other.sources)
        return type(self)(caches, sources, other.fused)


class FusedTransformer:
    """A decodable with the same results as the model."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def start(self, source: Source) -> FusedTransformerState:
        """As the model's."""
        model = self.model
        fused = fused_decoder(
            model,
            model.decoder_layers(),
            model.decoder_norm,
            self._embedding(model.target_embedding, model.target_positions),
            *(model.output_table, model.bias, model.projection),
        )
        sources = self._sources(source)
        in_place = cached.reads_in_place(model.target_embedding.weight)
        caches = layer_caches(model.decoder_layers(), len(source.lengths), in_place=in_place)
        return FusedTransformerState(caches, sources, fused)

    def step(
        self, tokens: Tensor, state: FusedTransformerState
    ) -> tuple[Tensor, FusedTransformerState]:
        """As the model's."""
        if state.fused is not None and state.fused.can_step(state.caches.position):
            return state.fused.step(tokens, state.caches, state.sources), state
        return self.model.step(tokens, state)[0], state

    def _sources(self, source: Source) -> SourceMemories:
        """The memories of the sources for the decoder's layers."""
        model = self.model
        readers = [layer.cross_attention for layer in model.decoder_layers()]
        blocks = [layer for layer in model.encoder if isinstance(layer, EncoderLayer)]
        embedding = self._embedding(model.source_embedding, model.source_positions)
        fused = fused_encoder(model, blocks, model.encoder_norm, embedding, readers)
        if fused is not None and fused.can_read(source.tokens.shape[1]):
            return fused.read(source.tokens, source.lengths)
        memories, _ = model.encode(source)
        in_place = cached.reads_in_place(memories[0].key)
        return SourceMemories(memories, source.lengths, in_place=in_place)

    def _embedding(self, table: nn.Embedding, positions: AddedPositions) -> Embedding:
        """The embedding of the model, without dropout."""
        settings = self.model.settings
        scale = math.sqrt(settings.hidden_size) if settings.scale_embeddings else 1.0
        added = _table(positions)
        assert added is not None
        return Embedding(Tables(table.weight, scale, added), (table, positions))


def _table(positions: AddedPositions) -> Tensor | None:
    """The position vectors ``[L, D]``, if they are a table; else None."""
    if type(positions) is Learned:
        return positions.table.weight
    return positions.table if type(positions) is Sinusoidal else None


def searched_transformer(model: Transformer) -> FusedTransformer | Transformer:
    """The fused form, if the kernel supports the model's embeddings and outputs."""
    known = (
        _table(model.source_positions) is not None
        and _table(model.target_positions) is not None
        and not model.settings.embedding_norm
        and not model.settings.scale_output
    )
    return FusedTransformer(model) if known else model
