"""Captions by a Transformer that reads convolutional features of cells or frames, or patches.

Vaswani et al. 2017, "Attention Is All You Need", with a learned vector added to each cell's
features in place of the position of a word.
Shapes: A images, B captions, K cells, D width, T target tokens.
"""

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention.positions import PositionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.transformer import Activation
from heedful.models.attention_settings import PairAttentionSettings, without_added
from heedful.models.captions import CaptionModel, Scenes
from heedful.models.image_features import ImageFeatures
from heedful.models.images import ImageShape
from heedful.models.registry import CaptionSettings, register_model
from heedful.models.residual_settings import ResidualSettings
from heedful.models.transformer import Transformer, TransformerSettings, TransformerState


class CaptionTransformerSettings(CaptionSettings):
    """Sizes and options of a Transformer that describes images."""

    kind: Literal["transformer"] = "transformer"
    encoder: ResidualSettings = ResidualSettings(widths=(32, 64, 128), blocks=2, stem="large")
    """The network whose features are read, without patches."""
    patch_size: int = Field(0, ge=0, le=MOST_WIDTH)
    """Side of the patches of pixels that are read instead of features; 0 for features."""
    layers: int = Field(2, ge=1, le=MOST_LAYERS)
    """Layers of self-attention between the cells."""
    decoder_layers: int = Field(2, ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(128, ge=2, le=MOST_WIDTH, multiple_of=2)
    ffn_size: int = Field(256, ge=1, le=MOST_WIDTH)
    heads: int = Field(4, ge=1, le=MOST_WIDTH)
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    activation: Activation = "relu"
    pre_norm: bool = True
    positions: PositionSettings = PositionSettings.model_validate("sinusoidal")
    """Of the words."""
    tied_embeddings: Literal["output", "none"] = "output"
    """Whether the embedding and the output matrix are one."""
    max_length: int = Field(64, ge=2, le=MOST_POSITIONS)
    """Longest caption in tokens, END included."""
    attention: PairAttentionSettings = PairAttentionSettings()

    @model_validator(mode="before")
    @classmethod
    def _relative_only(cls, given: Any) -> Any:
        return without_added(given)

    @model_validator(mode="after")
    def _fits(self) -> "CaptionTransformerSettings":
        self.of_transformer(self.max_length)
        return self

    def of_transformer(self, longest: int) -> TransformerSettings:
        """The settings of the Transformer, for sources and captions of so many positions."""
        named = ["layers", "decoder_layers", "hidden_size", "ffn_size", "heads", "dropout"]
        named += ["attention_dropout", "activation", "pre_norm", "positions", "attention"]
        return TransformerSettings(
            **{name: getattr(self, name) for name in named},
            tied_embeddings="all" if self.tied_embeddings == "output" else "none",
            max_length=longest,
        )


class CaptionTransformer(CaptionModel):
    """A Transformer over the cells of an image.

    Args:
        settings: sizes and options.
        shape: of all images.
        vocabulary: number of symbols.

    Raises:
        ValueError: the parts do not fit together, or the images cannot be cut into such patches.

    Example:
        >>> settings = CaptionTransformerSettings(hidden_size=8, heads=2, ffn_size=8)
        >>> model = CaptionTransformer(settings, ImageShape(96, 96, 3), 50)
        >>> images = torch.zeros(1, 96, 96, 3, dtype=torch.uint8)
        >>> model.teacher_force(Scenes(images), torch.tensor([[2, 8]])).shape
        torch.Size([1, 2, 50])
    """

    def __init__(
        self, settings: CaptionTransformerSettings, shape: ImageShape, vocabulary: int
    ) -> None:
        super().__init__()
        self.settings, self.shape, self.max_length = settings, shape, settings.max_length
        self.look = ImageFeatures(settings.encoder, shape, settings.patch_size)
        self.grids, cells = self.look.grids, self.look.count
        self.project = nn.Linear(self.look.width, settings.hidden_size)
        self.cells = nn.Parameter(torch.randn(cells, settings.hidden_size) * 0.02)
        longest = max(cells, settings.max_length)
        self.transformer = Transformer(settings.of_transformer(longest), vocabulary, vocabulary)
        if settings.tied_embeddings == "none":
            del self.transformer.source_embedding

    def _read(self, images: Tensor) -> Tensor:
        """The encoder's output ``[A, K, D]``."""
        cells = self.look(images, self.cells.dtype)
        hidden = self.transformer.dropout(self.project(cells) + self.cells)
        return self.transformer.encode_vectors(hidden)

    def states(self, source: Any, target_in: Tensor) -> Tensor:
        scenes: Scenes = source
        encoded = scenes.of_captions(self._read(scenes.images))
        return self.transformer.decode(encoded, None, target_in)

    def start(self, source: Any) -> TransformerState:
        encoded = self._read(source.images)
        lengths = torch.full((len(encoded),), encoded.shape[1], device=encoded.device)
        return self.transformer.begin(encoded, lengths)

    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        states, after = self.transformer.advance(tokens, state)
        return self.logits(states), after

    @property
    def output_table(self) -> Tensor:
        return self.transformer.output_table

    def layer_states(self) -> list[str]:
        return [f"transformer.{name}" for name in self.transformer.layer_states()]

    def read_layer(self, states: Tensor) -> Tensor:
        return self.logits(self.transformer.decoder_norm(states))

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        axes = self.look.gates("look")
        named = {"source": self.look.axis, "target": "target"}
        for name, (queries, keys) in self.transformer.attention_axes().items():
            axes[f"transformer.{name}"] = (named[queries], named[keys])
        return axes


register_model(CaptionTransformerSettings, CaptionTransformer)
