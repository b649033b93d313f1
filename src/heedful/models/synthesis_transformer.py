"""A Transformer that reads characters and predicts frames.

    x_n = project(convolutions(embedding(character n))) + α PE(n)
    z_s = project(prenet(y_{s−1})) + α' PE(s)
    d_s = decoder(z_1 … z_s; encoder(x))
    y_s = W d_s + b,  stop_s = σ(w · d_s + b'),  y ← y + postnet(y)

Li et al. 2019, "Neural Speech Synthesis with Transformer Network", section 3. α and α' are learned,
because characters and frames are of different size. y_s has r frames (Wang et al. 2017, "Tacotron:
Towards End-to-End Speech Synthesis", section 3.3). Normalization is that of the other Transformers.
Shapes: B texts, N rows, L tokens, S steps, M bands, r frames of a step, D width.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention import Memory
from heedful.attention.masks import causal, padding
from heedful.attention.positions import Sinusoidal
from heedful.attention.settings import AttentionSettings, Role
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.caches import LayerCaches
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.speaking import Prenet, TimeConvolutions, postnet
from heedful.layers.transformer import (
    Activation,
    BlockOptions,
    DecoderLayer,
    EncoderLayer,
    layer_caches,
)
from heedful.models.attention_settings import PairAttentionSettings, check_layers
from heedful.models.pairs import AlignmentSource, Source
from heedful.models.registry import SynthesisSettings, register_model
from heedful.models.synthesis import SynthesisModel

_ROLES: dict[str, Role] = {"encoder": "self", "decoder": "causal", "cross": "cross"}
_ALIGNED = 2
"""Heads whose weights are the alignment."""


class TransformerSynthesisSettings(SynthesisSettings):
    """Sizes and options of a Transformer that synthesises speech."""

    reads_any_length = True
    kind: Literal["transformer"] = "transformer"
    encoder_convolutions: int = Field(3, ge=0, le=MOST_LAYERS)
    """Convolutions over the characters, of width 5."""
    layers: int = Field(3, ge=1, le=MOST_LAYERS)
    """Of the encoder."""
    decoder_layers: int = Field(3, ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(256, ge=2, le=MOST_WIDTH, multiple_of=2)
    ffn_size: int = Field(1024, ge=1, le=MOST_WIDTH)
    heads: int = Field(4, ge=1, le=MOST_WIDTH)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    activation: Activation = "relu"
    pre_norm: bool = True
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest sentence in characters, END included."""
    attention: PairAttentionSettings = PairAttentionSettings()

    @model_validator(mode="after")
    def _fits(self) -> "TransformerSynthesisSettings":
        for part, role in _ROLES.items():
            check_layers(self.attention_of(part), self.hidden_size, role, self.max_length)
        return self

    def attention_of(self, part: str) -> list[AttentionSettings]:
        """The attention of each layer of a part: "encoder", "decoder" or "cross"."""
        own = AttentionSettings(heads=self.heads, dropout=self.attention_dropout)
        layers = self.layers if part == "encoder" else self.decoder_layers
        return self.attention.of_part(part, [own] * layers)


@dataclass(frozen=True)
class TransformerSynthesisState:
    """The state of synthesis between two steps, for N rows."""

    caches: LayerCaches
    """Keys and values of the earlier steps; a step appends its own."""
    memories: list[Memory]
    """Each layer's memory of the texts."""
    mask: Tensor
    """Which tokens exist, ``[N, 1, 1, L]``."""
    seed: int
    """Of the pre-net's dropout."""


class ScaledPositions(nn.Module):
    """x + α PE, where the scalar α is learned, and dropout (Li et al. 2019, equation 3)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.scale, self.sinusoids = nn.Parameter(torch.ones(())), Sinusoidal(width)
        self.drop = Dropout(dropout)

    def forward(self, vectors: Tensor, first: int | Tensor = 0) -> Tensor:
        """``[B, L, D] -> [B, L, D]``; the first position is ``first``."""
        added: Tensor = self.sinusoids(torch.zeros_like(vectors), first)
        found: Tensor = self.drop(vectors + self.scale * added)
        return found


class TransformerSynthesis(SynthesisModel):
    """The model.

    Args:
        settings: sizes and options.
        bands: width of a frame M.
        vocabulary: number of symbols.

    Example:
        >>> settings = TransformerSynthesisSettings(hidden_size=8, heads=2, ffn_size=8)
        >>> model = TransformerSynthesis(settings, 40, 30)
        >>> source = Source(torch.tensor([[9, 8, 3]]), torch.tensor([3]))
        >>> found = model.teacher_force(source, torch.zeros(1, 7, 40), torch.tensor([7]))
        >>> found.fine.shape, found.stops.shape
        (torch.Size([1, 9, 40]), torch.Size([1, 3]))
    """

    def __init__(self, settings: TransformerSynthesisSettings, bands: int, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.bands, self.max_length = settings, bands, settings.max_length
        self.frames_per_step = settings.frames_per_step
        width, dropout = settings.hidden_size, settings.dropout
        self.embedding = token_embedding(vocabulary, width)
        self.convolutions = TimeConvolutions(
            [width] * (settings.encoder_convolutions + 1),
            5,
            activation="relu",
            dropout=settings.convolution_dropout,
        )
        # ReLU and dropout leave no negative values; the projection is centred (section 3.3).
        self.project_source = nn.Linear(width, width)
        self.source_positions = ScaledPositions(width, dropout)
        self.prenet = Prenet(
            bands,
            settings.prenet_size,
            dropout=settings.prenet_dropout,
            always=settings.prenet_always,
        )
        self.project_frames = nn.Linear(settings.prenet_size, width)
        self.frame_positions = ScaledPositions(width, dropout)
        self._add_layers(settings)
        self.frames = nn.Linear(width, settings.frames_per_step * bands)
        self.stop = nn.Linear(width, 1)
        self.postnet = postnet(
            bands,
            layers=settings.postnet_layers,
            channels=settings.postnet_channels,
            dropout=settings.convolution_dropout,
        )

    def _add_layers(self, settings: TransformerSynthesisSettings) -> None:
        width, pre_norm = settings.hidden_size, settings.pre_norm
        options = BlockOptions(
            width,
            settings.ffn_size,
            settings.dropout,
            pre_norm=pre_norm,
            activation=settings.activation,
        )
        self.encoder = nn.ModuleList(
            EncoderLayer(options, own, number=number)
            for number, own in enumerate(settings.attention_of("encoder"), 1)
        )
        both = zip(settings.attention_of("decoder"), settings.attention_of("cross"), strict=True)
        self.decoder = nn.ModuleList(
            DecoderLayer(options, own, cross, number=number)
            for number, (own, cross) in enumerate(both, 1)
        )
        self.encoder_norm = nn.LayerNorm(width) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(width) if pre_norm else nn.Identity()

    def encode(self, source: Source) -> tuple[list[Memory], Tensor]:
        """Each decoder layer's memory of the tokens, and which tokens exist ``[B, 1, 1, L]``."""
        tokens, lengths = source.tokens, source.lengths
        vectors = self.convolutions(self.embedding(tokens), lengths)
        hidden = self.source_positions(self.project_source(vectors))
        mask = padding(lengths).dense((len(tokens), 1, 1, tokens.shape[1]), tokens.device)
        for layer in self.encoder:
            hidden = layer(hidden, mask)
        encoded = self.encoder_norm(hidden)
        return [layer.cross_attention.remember(encoded) for layer in self._decoder()], mask

    def _decoder(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def unroll(self, source: Source, inputs: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
        memories, mask = self.encode(source)
        hidden = self.frame_positions(self.project_frames(self.prenet(inputs, seed=seed)))
        # Padding is at the end of a row, so the causal mask hides it as well.
        for layer, memory in zip(self._decoder(), memories, strict=True):
            hidden = layer(hidden, causal(), memory, mask)
        frames, stops = self._predict(hidden)
        return frames.flatten(1, 2), stops

    def start(self, source: Source, seed: int = 0) -> TransformerSynthesisState:
        memories, mask = self.encode(source)
        caches = layer_caches(self._decoder(), len(source.lengths))
        return TransformerSynthesisState(caches, memories, mask, seed)

    def step(
        self, frame: Tensor, state: TransformerSynthesisState
    ) -> tuple[Tensor, Tensor, TransformerSynthesisState]:
        place = state.caches.length
        seen = self.prenet(frame.unsqueeze(1), seed=state.seed, first=place)
        hidden = self.frame_positions(self.project_frames(seen), place)
        for layer, memory, cache in zip(self._decoder(), state.memories, state.caches, strict=True):
            hidden = layer(hidden, None, memory, state.mask, cache)
        frames, stops = self._predict(hidden)
        return frames.squeeze(1), stops.squeeze(1), state

    def _predict(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Frames ``[B, S, r, M]`` and logits of the stop ``[B, S]`` of ``hidden [B, S, D]``."""
        states = self.decoder_norm(hidden)
        frames: Tensor = self.frames(states)
        stops: Tensor = self.stop(states)
        return frames.unflatten(-1, (-1, self.bands)), stops.squeeze(-1)

    @property
    def alignment(self) -> AlignmentSource:
        """The first heads of the last layer; the others, and the other layers, are free."""
        attention = self._decoder()[-1].cross_attention
        heads = tuple(range(min(_ALIGNED, attention.heads)))
        return AlignmentSource(f"decoder.{len(self.decoder) - 1}.cross_attention", heads, shift=0)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        axes = {}
        for layer in range(len(self.encoder)):
            axes[f"encoder.{layer}.self_attention"] = ("source", "source")
        for layer in range(len(self.decoder)):
            axes[f"decoder.{layer}.self_attention"] = ("time", "time")
            axes[f"decoder.{layer}.cross_attention"] = ("time", "source")
        return axes


register_model(TransformerSynthesisSettings, TransformerSynthesis)
