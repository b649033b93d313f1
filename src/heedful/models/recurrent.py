"""The recurrent encoder–decoder, without attention and with Bahdanau's or Luong's.

Shapes: B batch, N rows of search, S source tokens, T target tokens, E embedding, H hidden, D = H
the readout's width, A an annotation's width (H, or 2·H with two directions), V vocabulary.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.recurrent import Bridge, RecurrentEncoder
from heedful.models.pairs import (
    PairModel,
    Source,
    State,
    require_one_vocabulary,
)
from heedful.models.recurrent_decoders import RecurrentState, recurrent_decoder
from heedful.models.recurrent_rows import SourceRows
from heedful.models.recurrent_settings import RecurrentSettings
from heedful.models.registry import register_model

__all__ = ["RecurrentEncoderDecoder", "RecurrentSettings", "RecurrentState"]


class RecurrentEncoderDecoder(PairModel):
    """Recurrent encoder and decoder with attention none, Bahdanau's or Luong's.

    The decoder starts from the encoder's final state, through a bridge if their sizes differ
    (:class:`heedful.layers.recurrent.Bridge`). Dropout is applied to the embeddings, between layers
    and to the readout, never to recurrent connections (Zaremba et al. 2014).

    Args:
        settings: sizes and options.
        source_vocabulary: number of symbols of the source.
        target_vocabulary: number of symbols of the target.

    Raises:
        ValueError: all embeddings are tied, but the vocabularies differ in size.

    Example:
        >>> settings = RecurrentSettings(embedding_size=8, hidden_size=8)
        >>> model = RecurrentEncoderDecoder(settings, 50, 60)
        >>> source = Source(torch.tensor([[7, 9, 3]]), torch.tensor([3]))
        >>> model.teacher_force(source, torch.tensor([[2, 8]])).shape
        torch.Size([1, 2, 60])
    """

    def __init__(
        self, settings: RecurrentSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        require_one_vocabulary(settings.tied_embeddings, source_vocabulary, target_vocabulary)
        self.settings, self.max_length = settings, settings.max_length
        self.drop = Dropout(settings.dropout)
        self.target_embedding = token_embedding(target_vocabulary, settings.embedding_size)
        self.source_embedding = (
            self.target_embedding
            if settings.tied_embeddings == "all"
            else token_embedding(source_vocabulary, settings.embedding_size)
        )
        self.encoder = RecurrentEncoder(
            settings.cell,
            settings.embedding_size,
            settings.hidden_size,
            settings.encoder_layers,
            bidirectional=settings.bidirectional,
            dropout=settings.dropout,
        )
        annotation_dim = self.encoder.output_dim
        self.bridge = Bridge(
            settings.cell,
            annotation_dim,
            settings.encoder_layers,
            settings.hidden_size,
            settings.decoder_layers,
        )
        self.decoder = recurrent_decoder(settings, annotation_dim)
        self.output = None
        if settings.tied_embeddings == "none":
            self.output = nn.Linear(settings.hidden_size, target_vocabulary, bias=False)
            nn.init.normal_(self.output.weight, std=settings.hidden_size**-0.5)

    def start(self, source: Source) -> RecurrentState:
        state = self._begin(source)
        return replace(state, memory=self.decoder.prepare(state.memory))

    def _begin(self, source: Source) -> RecurrentState:
        embedded = self.drop(self.source_embedding(source.tokens))
        annotations, final = self.encoder(embedded, source.lengths)
        hidden = self.bridge(final)
        feed = torch.zeros_like(hidden[-1][0]) if self.decoder.feeding else None
        rows = SourceRows.one_each(len(source.tokens), source.tokens.device)
        memory = self.decoder.remember(annotations, final, source.lengths)
        return RecurrentState(hidden, memory, rows, feed, self.decoder.attending(memory))

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        embedded = self.drop(self.target_embedding(target_in))
        states: Tensor = self.drop(self.decoder.unroll(embedded, self._begin(source)))
        return states

    @property
    def output_table(self) -> Tensor:
        return self.target_embedding.weight if self.output is None else self.output.weight

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, RecurrentState]:
        if not isinstance(state, RecurrentState):
            raise TypeError(f"state must come from start or step, not {type(state).__name__}")
        embedded = self.drop(self.target_embedding(tokens))
        readouts, after = self.decoder.step(embedded, state)
        return self.logits(self.drop(readouts)), after

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        attends = self.settings.attention.name != "none"
        return {"decoder.attention": ("target", "source")} if attends else {}


register_model(RecurrentSettings, RecurrentEncoderDecoder)
