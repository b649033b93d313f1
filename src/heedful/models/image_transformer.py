"""Vision Transformers: self-attention between the patches of an image.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words: Transformers for Image Recognition at
Scale", section 3.1. The state that is classified is that of a learned vector (which is the last
position here, so that position p of a patch is its place in the grid), or the mean of all patches.
With patches of one to two pixels, quadratic positions and the mean, it is the network of Cordonnier
et al. 2020, section 4.
Shapes: B images, H rows, W columns, C channels, K patches, D width, N classes.
"""

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention.positions import PositionSettings
from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.layers.transformer import Activation, BlockOptions, EncoderLayer
from heedful.models.attention_settings import PartAttentionSettings, check_layers, without_added
from heedful.models.bert import initialise
from heedful.models.images import ImageModel, ImageShape, centred, check_patches, in_patches
from heedful.models.registry import ImageSettings, register_model


class ImageTransformerSettings(ImageSettings):
    """Sizes and options of a Vision Transformer."""

    kind: Literal["transformer"] = "transformer"
    patch_size: int = Field(4, ge=1, le=MOST_WIDTH)
    """Side of the square patches."""
    layers: int = Field(6, ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(128, ge=1, le=MOST_WIDTH)
    ffn_size: int = Field(256, ge=1, le=MOST_WIDTH)
    heads: int = Field(4, ge=1, le=MOST_WIDTH)
    pooling: Literal["mean", "class"] = "mean"
    """What is classified: the state of a learned vector, or the mean of the patches' states."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the sum of embeddings and on each sublayer's output."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    activation: Activation = "gelu"
    norm_epsilon: float = Field(1e-6, gt=0)
    positions: PositionSettings = PositionSettings.model_validate("learned")
    attention: PartAttentionSettings = PartAttentionSettings()

    @model_validator(mode="before")
    @classmethod
    def _relative_only(cls, given: Any) -> Any:
        return without_added(given)

    @model_validator(mode="after")
    def _fits(self) -> "ImageTransformerSettings":
        check_layers(self.attention_of_layers(), self.hidden_size, "self", MOST_POSITIONS)
        return self

    def attention_of_layers(self) -> list[AttentionSettings]:
        """The attention of each layer."""
        own = AttentionSettings(
            heads=self.heads,
            dropout=self.attention_dropout,
            positions=self.positions if self.positions.relative else None,
        )
        return self.attention.of_layers([own] * self.layers)

    @property
    def blocks(self) -> BlockOptions:
        """The options of its blocks."""
        return BlockOptions(
            self.hidden_size,
            self.ffn_size,
            self.dropout,
            pre_norm=True,
            activation=self.activation,
            norm_epsilon=self.norm_epsilon,
        )


class PatchEncoder(nn.Module):
    """The encoder, ``[B, H, W, C] -> [B, K, D]``, or ``[B, K + 1, D]`` with a learned vector.

    Args:
        settings: sizes and options.
        shape: of all images.

    Raises:
        ValueError: the images cannot be cut into such patches.
    """

    def __init__(self, settings: ImageTransformerSettings, shape: ImageShape) -> None:
        super().__init__()
        size, width = settings.patch_size, settings.hidden_size
        self.grid = check_patches(shape, size)
        self.patch_size = size
        self.patches = nn.Linear(size * size * shape.channels, width)
        self.vector: nn.Parameter | None = None
        count = self.grid[0] * self.grid[1]
        if settings.pooling == "class":
            self.vector = nn.Parameter(torch.empty(width))
            count += 1
        self.positions = settings.positions.build_added(width, count)
        self.drop = Dropout(settings.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(settings.blocks, own, number=number)
            for number, own in enumerate(settings.attention_of_layers(), 1)
        )
        self.norm = nn.LayerNorm(width, eps=settings.norm_epsilon)
        self.apply(initialise)
        if self.vector is not None:
            nn.init.normal_(self.vector, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        values = in_patches(centred(images, self.norm.weight.dtype), self.patch_size)
        hidden = self.patches(values)
        if self.vector is not None:
            last = self.vector.to(hidden.dtype).expand(len(hidden), 1, -1)
            hidden = torch.cat([hidden, last], 1)
        hidden = self.drop(self.positions(hidden))
        for layer in self.layers:
            hidden = layer(hidden, None)
        result: Tensor = self.norm(hidden)
        return result


class ImageTransformer(ImageModel):
    """A Vision Transformer.

    Args:
        settings: sizes and options.
        shape: of all images.
        classes: number of classes N.

    Raises:
        ValueError: the images cannot be cut into such patches.

    Example:
        >>> settings = ImageTransformerSettings(layers=1, hidden_size=8, heads=2, patch_size=2)
        >>> model = ImageTransformer(settings, ImageShape(6, 4, 3), 10)
        >>> model(torch.zeros(2, 6, 4, 3, dtype=torch.uint8)).shape
        torch.Size([2, 10])
    """

    def __init__(self, settings: ImageTransformerSettings, shape: ImageShape, classes: int) -> None:
        super().__init__()
        self.encoder = PatchEncoder(settings, shape)
        self.output = nn.Linear(settings.hidden_size, classes)
        initialise(self.output)
        self.grids = {"image": self.encoder.grid}

    def forward(self, images: Tensor) -> Tensor:
        states = self.encoder(images)
        one = states.mean(1) if self.encoder.vector is None else states[:, -1]
        result: Tensor = self.output(one)
        return result

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        axis = "image" if self.encoder.vector is None else "places"
        names = (
            f"encoder.layers.{layer}.self_attention" for layer in range(len(self.encoder.layers))
        )
        return dict.fromkeys(names, (axis, axis))


register_model(ImageTransformerSettings, ImageTransformer)
