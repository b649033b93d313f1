"""Perceiver and Perceiver IO: a few latent vectors read a text of any length.

    Z ← Z + Attn(Z, X, X),   then layers of self-attention over Z only
    O = Attn(Q, Z, Z)

The latents Z [N, D] are parameters. They read the inputs X [L, E] once, or several times (Jaegle et
al. 2021, "Perceiver: General Perception with Iterative Attention", section 3.1). Outputs of any
number are read from the latents by queries Q (Jaegle et al. 2022, "Perceiver IO: A General
Architecture for Structured Inputs & Outputs", section 3.1). The cost is linear in L, so that bytes
can be the tokens.
Shapes: B batch, L tokens, N latents, D width of a latent, E width of a token's vector.
"""

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention.masks import padding
from heedful.attention.positions import PositionSettings
from heedful.basics.limits import MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import PAD
from heedful.layers.dropout import Dropout
from heedful.layers.latents import ReadingLayer
from heedful.models.bert import initialise
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.latent_settings import LatentSettings
from heedful.models.registry import EncoderSettings, register_model


class PerceiverSettings(EncoderSettings, LatentSettings):
    """Sizes and options of a Perceiver that reads texts."""

    fills_masks = True
    kind: Literal["perceiver"] = "perceiver"
    hidden_size: int = Field(128, ge=1, le=MOST_WIDTH)
    """Width of the tokens' vectors and of the outputs."""
    segments: int = Field(2, ge=1, le=MOST_WIDTH)
    """Number of segment embeddings."""
    output_queries: Literal["positions", "tokens"] = "positions"
    """The query of a token's output: its position, as for masked tokens in the paper; or its
    position and its embedding, which is then also added to what is read."""
    max_length: int = Field(2048, ge=2, le=MOST_POSITIONS)
    """Longest row in tokens, including BEGIN and the ENDs."""
    positions: PositionSettings = PositionSettings.model_validate("learned")

    @model_validator(mode="after")
    def _fits(self) -> "PerceiverSettings":
        if self.positions.relative or self.positions.name == "none":
            raise ValueError(
                "a Perceiver needs positions that are added to the tokens, because its queries are "
                "not tokens; set model.positions = 'learned' or 'sinusoidal'"
            )
        self.check_attention(self.latent_size, self.hidden_size, max_length=self.max_length)
        return self


class PerceiverEmbeddings(nn.Module):
    """``dropout(token + position + segment)``, ``[B, L] -> [B, L, E]``."""

    def __init__(self, settings: PerceiverSettings, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, settings.hidden_size, padding_idx=PAD)
        self.positions = settings.positions.build_added(settings.hidden_size, settings.max_length)
        self.segments = nn.Embedding(settings.segments, settings.hidden_size)
        self.dropout = Dropout(settings.dropout)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        if self.segments.num_embeddings == 1:
            segments = torch.zeros_like(segments)
        embedded = self.tokens(tokens) + self.segments(segments)
        result: Tensor = self.dropout(self.positions(embedded))
        return result


class Perceiver(TextEncoder):
    """The encoder; ``pooled`` is the mean of the latents, as in the Perceiver.

    ``states`` are the outputs of the Perceiver IO, one for each token.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> settings = PerceiverSettings(hidden_size=8, latents=3, latent_size=12, heads=2)
        >>> encoded = Perceiver(settings, 30)(sequences_of([[7, 9], [8]]))
        >>> encoded.states.shape, encoded.pooled.shape
        (torch.Size([2, 4, 8]), torch.Size([2, 12]))
    """

    dim: int
    pooled_dim: int

    def __init__(self, settings: PerceiverSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        self.dim, self.pooled_dim = settings.hidden_size, settings.latent_size
        self.embeddings = PerceiverEmbeddings(settings, vocabulary)
        self.array = settings.build_latents(settings.hidden_size)
        self.output_positions = settings.positions.build_added(
            settings.hidden_size, settings.max_length
        )
        self.outputs = ReadingLayer(
            settings.blocks(settings.hidden_size),
            settings.latent_size,
            settings.attention_to_inputs(),
            residual=settings.output_queries == "tokens",
        )
        self.apply(initialise)
        self.array.reset_latents()

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch.

        Raises:
            ValueError: rows are longer than ``max_length``.
        """
        embedded = self.embeddings(batch.tokens, batch.segments)
        latents = self.array(embedded, padding(batch.lengths))
        return Encoded(self.outputs(self._queries(batch.tokens), latents), latents.mean(1))

    def _queries(self, tokens: Tensor) -> Tensor:
        """The queries of all tokens' outputs, ``[B, L, E]``."""
        embedded: Tensor = self.embeddings.tokens(tokens)
        if self.settings.output_queries == "positions":
            embedded = torch.zeros_like(embedded)
        result: Tensor = self.output_positions(embedded)
        return result

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        own = {f"array.{name}": axes for name, axes in self.array.axes("text").items()}
        return {"outputs.attention": ("text", "latents"), **own}  # the last is plotted by default

    def depth(self, name: str) -> int:
        """0 for embeddings, 1 for the latents and their reads, n + 1 for layer n, then outputs."""
        part, _, rest = name.partition(".")
        if part == "array":
            inside = rest.split(".")
            return int(inside[1]) + 2 if inside[0] == "layers" else 1
        return 0 if part == "embeddings" else len(self.array.layers) + 2


register_model(PerceiverSettings, Perceiver)
