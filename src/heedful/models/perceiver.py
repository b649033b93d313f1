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

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention.masks import padding
from heedful.attention.positions import PositionSettings
from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.basics.symbols import PAD
from heedful.layers.dropout import Dropout
from heedful.layers.latents import ReadingLayer
from heedful.layers.transformer import Activation, BlockOptions, EncoderLayer
from heedful.models.attention_settings import PartAttentionSettings, check_layers
from heedful.models.bert import initialise
from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.registry import EncoderSettings, register_model


class LatentAttentionSettings(PartAttentionSettings):
    """The attention of a Perceiver: that of the latents, and that between them and tokens."""

    cross: AttentionSettings | None = None
    """Of the latents to the tokens, and of outputs to the latents."""

    @model_validator(mode="after")
    def _without_order(self) -> "LatentAttentionSettings":
        for one in (self, self.cross, *(self.layers or ())):
            if one is not None and (one.positions is not None or one.mask is not None):
                raise ValueError(
                    "latents have no order, so that their attention has neither positions nor a "
                    "mask; positions of tokens are model.positions"
                )
        if self.cross is not None:
            self.cross.require_standard()
        return self


class PerceiverSettings(EncoderSettings):
    """Sizes and options of a Perceiver."""

    fills_masks = True
    kind: Literal["perceiver"] = "perceiver"
    hidden_size: int = Field(128, ge=1, le=MOST_WIDTH)
    """Width of the tokens' vectors and of the outputs."""
    latents: int = Field(32, ge=1, le=MOST_POSITIONS)
    """Number of latent vectors."""
    latent_size: int = Field(128, ge=1, le=MOST_WIDTH)
    """Width of a latent vector."""
    reads: int = Field(1, ge=1, le=MOST_LAYERS)
    """How often the latents read the tokens, each time followed by all layers. All reads after the
    first one have the same weights, and so have all repetitions of the layers."""
    layers: int = Field(4, ge=1, le=MOST_LAYERS)
    """Layers of self-attention of the latents, after each read."""
    heads: int = Field(4, ge=1, le=MOST_WIDTH)
    """Heads of the self-attention of the latents."""
    cross_heads: int = Field(1, ge=1, le=MOST_WIDTH)
    """Heads of the attention between latents and tokens."""
    ffn_size: int = Field(256, ge=1, le=MOST_WIDTH)
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the tokens' vectors and on each sublayer's output."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    activation: Activation = "gelu"
    norm_epsilon: float = Field(1e-5, gt=0)
    segments: int = Field(2, ge=1, le=MOST_WIDTH)
    """Number of segment embeddings."""
    output_queries: Literal["positions", "tokens"] = "positions"
    """The query of a token's output: its position, as for masked tokens in the paper; or its
    position and its embedding, which is then also added to what is read."""
    max_length: int = Field(2048, ge=2, le=MOST_POSITIONS)
    """Longest row in tokens, including BEGIN and the ENDs."""
    positions: PositionSettings = PositionSettings.model_validate("learned")
    attention: LatentAttentionSettings = LatentAttentionSettings()

    @model_validator(mode="after")
    def _fits(self) -> "PerceiverSettings":
        if self.positions.relative or self.positions.name == "none":
            raise ValueError(
                "a Perceiver needs positions that are added to the tokens, because its queries are "
                "not tokens; set model.positions = 'learned' or 'sinusoidal'"
            )
        check_layers(self.attention_of_layers(), self.latent_size, "self", self.max_length)
        cross = self.attention_to_tokens()
        for width in (self.latent_size, self.hidden_size):
            cross.check(width, "cross", max_length=self.max_length)
        return self

    def attention_of_layers(self) -> list[AttentionSettings]:
        """The attention of each layer of the latents."""
        own = AttentionSettings(heads=self.heads, dropout=self.attention_dropout)
        return self.attention.of_layers([own] * self.layers)

    def attention_to_tokens(self) -> AttentionSettings:
        """The attention between latents and tokens, in both directions."""
        own = AttentionSettings(heads=self.cross_heads, dropout=self.attention_dropout)
        return own if self.attention.cross is None else self.attention.cross.over(own)

    def blocks(self, width: int) -> BlockOptions:
        """The options of blocks for states of a width."""
        return BlockOptions(
            width,
            self.ffn_size,
            self.dropout,
            pre_norm=True,
            activation=self.activation,
            norm_epsilon=self.norm_epsilon,
        )


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
    shared: ClassVar[int] = 1
    """The index of the read that is repeated."""

    def __init__(self, settings: PerceiverSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        self.dim, self.pooled_dim = settings.hidden_size, settings.latent_size
        self.embeddings = PerceiverEmbeddings(settings, vocabulary)
        self.latents = nn.Parameter(torch.empty(settings.latents, settings.latent_size))
        options, cross = settings.blocks(settings.latent_size), settings.attention_to_tokens()
        self.reads = nn.ModuleList(
            ReadingLayer(options, settings.hidden_size, cross, number=number)
            for number in range(1, 1 + min(2, settings.reads))
        )
        self.layers = nn.ModuleList(
            EncoderLayer(options, own, number=number)
            for number, own in enumerate(settings.attention_of_layers(), 1)
        )
        self.output_positions = settings.positions.build_added(
            settings.hidden_size, settings.max_length
        )
        self.outputs = ReadingLayer(
            settings.blocks(settings.hidden_size),
            settings.latent_size,
            cross,
            residual=settings.output_queries == "tokens",
        )
        self.apply(initialise)
        nn.init.trunc_normal_(self.latents, std=0.02, a=-0.04, b=0.04)

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch.

        Raises:
            ValueError: rows are longer than ``max_length``.
        """
        embedded = self.embeddings(batch.tokens, batch.segments)
        latents = self.read(embedded, padding(batch.lengths))
        return Encoded(self.outputs(self._queries(batch.tokens), latents), latents.mean(1))

    def read(self, inputs: Tensor, mask: Any = None) -> Tensor:
        """The latents ``[B, N, D]`` after all reads of ``inputs [B, L, E]``.

        Args:
            inputs: what is read.
            mask: which inputs exist.
        """
        latents = self.latents.to(inputs.dtype).expand(len(inputs), -1, -1)
        for number in range(self.settings.reads):
            latents = self.reads[min(number, self.shared)](latents, inputs, mask)
            for layer in self.layers:
                latents = layer(latents, None)
        return latents

    def _queries(self, tokens: Tensor) -> Tensor:
        """The queries of all tokens' outputs, ``[B, L, E]``."""
        embedded: Tensor = self.embeddings.tokens(tokens)
        if self.settings.output_queries == "positions":
            embedded = torch.zeros_like(embedded)
        result: Tensor = self.output_positions(embedded)
        return result

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        reads = self.settings.reads
        repeated = ("reads",) if reads > 1 else ()
        again = ("reads",) if reads > 2 else ()
        found: dict[str, tuple[str, ...]] = {"outputs.attention": ("text", "latents")}
        for number in range(len(self.layers)):
            found[f"layers.{number}.self_attention"] = ("latents", "latents", *repeated)
        found["reads.0.attention"] = ("latents", "text")
        if reads > 1:
            found["reads.1.attention"] = ("latents", "text", *again)
        return found  # the last one is plotted by default

    def depth(self, name: str) -> int:
        """0 for embeddings, 1 for the latents and their reads, n + 1 for layer n, then outputs."""
        part, _, rest = name.partition(".")
        if part == "layers":
            return int(rest.partition(".")[0]) + 2
        known = {"embeddings": 0, "latents": 1, "reads": 1}
        return known.get(part, len(self.layers) + 2)


register_model(PerceiverSettings, Perceiver)
