"""A custom text model: a convolution over words and attention pooling to one vector.

Shapes: B batch, L tokens, D width.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention import Attention
from heedful.attention.masks import padding
from heedful.models import Encoded, EncoderSettings, Sequences, TextEncoder, register_model


class ConvolutionSettings(EncoderSettings):
    """The table ``[model]`` of a recipe with ``kind = "convolution"``."""

    kind: Literal["convolution"] = "convolution"
    hidden_size: int = Field(128, ge=1)
    kernel_size: int = Field(3, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    max_length: int = Field(512, ge=2)


class ConvolutionEncoder(TextEncoder):
    def __init__(self, settings: ConvolutionSettings, vocabulary: int) -> None:
        super().__init__()
        width, self.max_length = settings.hidden_size, settings.max_length
        self.dim = self.pooled_dim = width
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=0)
        self.convolution = nn.Conv1d(width, width, settings.kernel_size, padding="same")
        self.question = nn.Parameter(torch.randn(width) * width**-0.5)
        self.attention = Attention()
        self.dropout = nn.Dropout(settings.dropout)

    def encode(self, batch: Sequences) -> Encoded:
        embedded = self.dropout(self.tokens(batch.tokens))
        states: Tensor = torch.relu(self.convolution(embedded.mT).mT)  # [B, L, D]
        query = self.question.expand(len(states), 1, -1)
        pooled = self.attention(query, states, mask=padding(batch.lengths))
        return Encoded(states, pooled.squeeze(1))

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {"attention": ("hops", "text")}


register_model(ConvolutionSettings, ConvolutionEncoder)
