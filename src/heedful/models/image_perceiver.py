"""A Perceiver that classifies images: a few latents read all pixels, or patches of them.

Jaegle et al. 2021, "Perceiver: General Perception with Iterative Attention", section 3. What is
read at a place are its values and Fourier features of its position; the label is a linear function
of the mean of the latents.
Shapes: B images, H rows, W columns, C channels, K places, E width of a place, N classes.
"""

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.basics.limits import MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.layers.latents import fourier_features
from heedful.models.bert import initialise
from heedful.models.images import ImageModel, ImageShape, centred, check_patches, in_patches
from heedful.models.latent_settings import LatentSettings
from heedful.models.registry import ImageSettings, register_model


class ImagePerceiverSettings(ImageSettings, LatentSettings):
    """Sizes and options of a Perceiver that reads images."""

    kind: Literal["perceiver"] = "perceiver"
    patch_size: int = Field(1, ge=1, le=MOST_WIDTH)
    """Side of the square patches that are read; 1 for single pixels."""
    bands: int = Field(8, ge=1, le=MOST_WIDTH)
    """Number of frequencies of the Fourier features of a coordinate."""

    @model_validator(mode="after")
    def _fits(self) -> "ImagePerceiverSettings":
        self.check_attention(self.latent_size)
        return self


class ImagePerceiver(ImageModel):
    """A Perceiver.

    Args:
        settings: sizes and options.
        shape: of all images.
        classes: number of classes N.

    Raises:
        ValueError: the images cannot be cut into such patches.

    Example:
        >>> settings = ImagePerceiverSettings(latents=3, latent_size=8, heads=2, patch_size=2)
        >>> model = ImagePerceiver(settings, ImageShape(6, 4, 1), 10)
        >>> model(torch.zeros(2, 6, 4, 1, dtype=torch.uint8)).shape
        torch.Size([2, 10])
    """

    places: Tensor

    def __init__(self, settings: ImagePerceiverSettings, shape: ImageShape, classes: int) -> None:
        super().__init__()
        self.settings, size = settings, settings.patch_size
        grid = check_patches(shape, size)
        self.grids = {"image": grid}
        places = fourier_features(*grid, settings.bands)
        self.register_buffer("places", places, persistent=False)
        self.drop = Dropout(settings.dropout)
        self.array = settings.build_latents(size * size * shape.channels + places.shape[1])
        self.output = nn.Linear(settings.latent_size, classes)
        self.apply(initialise)
        self.array.reset_latents()

    def forward(self, images: Tensor) -> Tensor:
        kind = self.output.weight.dtype
        values = in_patches(centred(images, kind), self.settings.patch_size)
        places = self.places.to(kind).expand(len(images), -1, -1)
        latents = self.array(self.drop(torch.cat([values, places], 2)))
        result: Tensor = self.output(latents.mean(1))
        return result

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        return {f"array.{name}": axes for name, axes in self.array.axes("image").items()}


register_model(ImagePerceiverSettings, ImagePerceiver)
