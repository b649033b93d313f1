"""A small convolutional network for images, whose second kernel a hyper-network may compute.

Ha, Dai, Le 2016, "HyperNetworks", section 4.1: two convolutions of 7 × 7 with 16 channels, each
with a ReLU and a pooling, and a linear layer. The second kernel has 12,544 weights; the
hyper-network that replaces it has 4,244.
Shapes: B images, H rows, W columns, C channels, N classes.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from heedful.basics.limits import MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.layers.hyper_kernel import HyperKernel
from heedful.models.images import ImageModel, ImageShape, centred
from heedful.models.registry import ImageSettings, register_model


class ConvolutionalImageSettings(ImageSettings):
    """Sizes and options of a convolutional network for images."""

    kind: Literal["convolutional"] = "convolutional"
    channels: int = Field(16, ge=1, le=MOST_WIDTH)
    """Channels of both convolutions."""
    kernel_size: int = Field(7, ge=1, le=MOST_WIDTH)
    """Side of the kernels, odd."""
    hyper_size: int = Field(0, ge=0, le=MOST_WIDTH)
    """Width of the embedding and of the hidden layer of the hyper-network that computes the second
    kernel; 0 for a kernel of its own. 4 in the paper."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout before the linear layer."""

    @field_validator("kernel_size")
    @classmethod
    def _odd(cls, size: int) -> int:
        if size % 2 == 0:
            raise ValueError(f"a kernel of {size} × {size} has no centre; choose an odd number")
        return size


class ConvolutionalImage(ImageModel):
    """Two convolutions and a linear layer.

    Args:
        settings: sizes and options.
        shape: of all images.
        classes: number of classes N.

    Raises:
        ValueError: the images are smaller than 4 × 4.

    Example:
        >>> model = ConvolutionalImage(ConvolutionalImageSettings(), ImageShape(28, 28, 1), 10)
        >>> model(torch.zeros(2, 28, 28, 1, dtype=torch.uint8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, settings: ConvolutionalImageSettings, shape: ImageShape, classes: int
    ) -> None:
        super().__init__()
        if min(shape.rows, shape.columns) < 4:
            raise ValueError(
                f"images of {shape.rows} × {shape.columns} are too small for two poolings; "
                "data.size must be at least 4 × 4"
            )
        width, size = settings.channels, settings.kernel_size
        self.first = nn.Conv2d(shape.channels, width, size, padding=size // 2)
        self.second: nn.Conv2d | None = None
        self.hyper: HyperKernel | None = None
        if settings.hyper_size:
            hyper = settings.hyper_size
            self.hyper = HyperKernel(width, width, size, embedding=hyper, hidden=hyper)
            self.bias = nn.Parameter(torch.zeros(width))
        else:
            self.second = nn.Conv2d(width, width, size, padding=size // 2)
        self.drop = Dropout(settings.dropout)
        self.output = nn.Linear(width * (shape.rows // 4) * (shape.columns // 4), classes)

    def forward(self, images: Tensor) -> Tensor:
        values = centred(images, self.output.weight.dtype).permute(0, 3, 1, 2)
        hidden = F.max_pool2d(F.relu(self.first(values)), 2)
        if self.hyper is not None:
            kernel = self.hyper()
            convolved = F.conv2d(hidden, kernel, self.bias, padding=kernel.shape[-1] // 2)
        else:
            assert self.second is not None
            convolved = self.second(hidden)
        result: Tensor = self.output(self.drop(F.max_pool2d(F.relu(convolved), 2).flatten(1)))
        return result


register_model(ConvolutionalImageSettings, ConvolutionalImage)
