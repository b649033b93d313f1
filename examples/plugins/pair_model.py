"""A custom text-pair model: two GRUs and attention (Luong et al. 2015, without input feeding).

Shapes: B batch, N rows of search, S source tokens, T target tokens, D width, V vocabulary.
"""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention import Attention, Memory
from heedful.attention.masks import padding
from heedful.attention.scores import General
from heedful.models import PairModel, PairSettings, Source, TensorState, register_model


class GruSettings(PairSettings):
    """The table ``[model]`` of a recipe with ``kind = "gru-pairs"``."""

    kind: Literal["gru-pairs"] = "gru-pairs"
    hidden_size: int = Field(128, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    max_length: int = Field(512, ge=2)


class GruPairs(PairModel):
    def __init__(self, settings: GruSettings, source_symbols: int, target_symbols: int) -> None:
        super().__init__()
        width, self.max_length = settings.hidden_size, settings.max_length
        self.source_embedding = nn.Embedding(source_symbols, width, padding_idx=0)
        self.target_embedding = nn.Embedding(target_symbols, width, padding_idx=0)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.attention = Attention(General(width, width))
        self.combine = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(settings.dropout)
        nn.init.normal_(self.target_embedding.weight, std=width**-0.5)

    @property
    def output_table(self) -> Tensor:
        return self.target_embedding.weight  # [V, D]

    def start(self, source: Source) -> TensorState:
        annotations, _ = self.encoder(self.dropout(self.source_embedding(source.tokens)))
        rows = torch.arange(len(annotations), device=annotations.device)
        last = annotations[rows, source.lengths - 1]  # [B, D], after END
        memory = self.attention.remember(annotations)
        return TensorState(last=last, lengths=source.lengths, **memory._asdict())

    def advance(self, tokens: Tensor, state: TensorState) -> tuple[Tensor, TensorState]:
        """The states ``[N, T, D]`` that predict the next tokens, and the new state."""
        embedded = self.dropout(self.target_embedding(tokens))
        hidden, last = self.decoder(embedded, state["last"].unsqueeze(0))
        memory, mask = Memory(state["key"], state["value"]), padding(state["lengths"])
        context = self.attention.read(hidden, memory, mask)
        readout = torch.tanh(self.combine(torch.cat([hidden, context], -1)))
        return self.dropout(readout), TensorState({**state, "last": last.squeeze(0)})

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        return self.advance(target_in, self.start(source))[0]

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, TensorState]:
        readout, after = self.advance(tokens.unsqueeze(1), state)
        return self.logits(readout.squeeze(1)), after

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {"attention": ("target", "source")}


register_model(GruSettings, GruPairs)
