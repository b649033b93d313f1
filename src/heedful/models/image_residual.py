"""A residual network that classifies images, with or without attention to channels and places.

He et al. 2016, section 4.2: 3 stages of blocks with two convolutions, a global mean and a linear
layer. See :mod:`heedful.layers.channel_attention` for the attention.
Shapes: B images, H rows, W columns, C channels, N classes.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from heedful.layers.dropout import Dropout
from heedful.models.images import ImageModel, ImageShape, centred
from heedful.models.registry import ImageSettings, register_model
from heedful.models.residual_settings import ResidualSettings


class ResidualImageSettings(ResidualSettings, ImageSettings):
    """Sizes and options of a residual network for images."""

    kind: Literal["residual"] = "residual"
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout before the linear layer."""


class ResidualImage(ImageModel):
    """A residual network and a linear layer over the mean of its features.

    Args:
        settings: sizes and options.
        shape: of all images.
        classes: number of classes N.

    Example:
        >>> import torch
        >>> settings = ResidualImageSettings(widths=(8, 16), blocks=1, channel_attention="se")
        >>> model = ResidualImage(settings, ImageShape(32, 32, 3), 10)
        >>> model(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).shape
        torch.Size([2, 10])
    """

    def __init__(self, settings: ResidualImageSettings, shape: ImageShape, classes: int) -> None:
        super().__init__()
        self.shape = (shape.rows, shape.columns)
        self.network = settings.build_network(shape.channels)
        self.drop = Dropout(settings.dropout)
        self.output = nn.Linear(self.network.dim, classes)
        self.grids = self.network.grids(self.shape)

    def forward(self, images: Tensor) -> Tensor:
        values = centred(images, self.output.weight.dtype).permute(0, 3, 1, 2)
        result: Tensor = self.output(self.drop(self.network(values).mean((2, 3))))
        return result

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        return dict(self.network.gates(self.shape, "network"))


register_model(ResidualImageSettings, ResidualImage)
