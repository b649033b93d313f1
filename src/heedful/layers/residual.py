"""Residual networks of convolutions.

He, Zhang, Ren, Sun 2016, "Deep Residual Learning for Image Recognition", sections 3.3, 3.4 and 4.2.
By default, features are normalized over groups of the channels of one image (Wu and He 2018, "Group
Normalization"), so that an image's features do not depend on the other images of a batch.
Shapes: B images, C channels, H rows, W columns.
"""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.layers.channel_attention import ChannelAttention, channel_attention, gate_axes

Norm = Literal["group", "fixed"]
Scaling = Literal["centred", "imagenet"]
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of the colours of pixels from 0 to 1."""
_GROUP = 8
"""Channels of a group."""


class ResidualOptions(NamedTuple):
    """Sizes and options of a residual network."""

    widths: tuple[int, ...] = (16, 32, 64)
    """Channels of each stage; a stage after the first has half as many rows and columns."""
    blocks: tuple[int, ...] = (3, 3, 3)
    """Blocks of each stage."""
    stem: Literal["small", "large"] = "small"
    """A 3 × 3 convolution; or 7 × 7 with stride 2 and a pooling, for images of 100 more rows."""
    bottleneck: bool = False
    """Blocks of 1 × 1, 3 × 3 and 1 × 1 convolutions, with 4 times as many output channels."""
    norm: Norm = "group"
    """Over groups of channels; or "fixed", with stored means and variances."""
    attention: ChannelAttention = "none"
    reduction: int = 16
    scaling: Scaling = "centred"
    """Pixels from −1 to 1, or with ImageNet's mean 0 and variance 1, as torchvision's."""


class FixedNorm(nn.Module):
    """Batch normalization with stored means and variances, which training does not change.

    Args:
        channels: C.
        epsilon: added to the variances.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
        )
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))
        self.epsilon = epsilon

    def forward(self, maps: Tensor) -> Tensor:
        return F.batch_norm(
            maps, self.mean, self.variance, self.weight, self.bias, training=False, eps=self.epsilon
        )


def _norm(kind: Norm, channels: int) -> nn.Module:
    if kind == "fixed":
        return FixedNorm(channels)
    return nn.GroupNorm(math.gcd(channels, max(1, channels // _GROUP)), channels)


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


class ResidualBlock(nn.Module):
    """``ReLU(x + attention(convolutions(x)))``; a 1 × 1 convolution of x if its size changes.

    Args:
        inputs: channels of x.
        width: channels of the inner convolutions; a bottleneck block's output has 4 times as many.
        stride: 2 halves rows and columns.
        options: of the network.
    """

    def __init__(self, inputs: int, width: int, stride: int, options: ResidualOptions) -> None:
        super().__init__()
        outputs = 4 * width if options.bottleneck else width
        sizes = (
            [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
            if options.bottleneck
            else [(inputs, width, 3, stride), (width, width, 3, 1)]
        )
        self.convolutions = nn.ModuleList(_conv(*size) for size in sizes)
        self.norms = nn.ModuleList(_norm(options.norm, size[1]) for size in sizes)
        self.attention = channel_attention(options.attention, outputs, options.reduction)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(_conv(inputs, outputs, 1), _norm(options.norm, outputs))
        self.stride, self.outputs = stride, outputs

    def forward(self, maps: Tensor) -> Tensor:
        hidden = maps
        last = len(self.convolutions) - 1
        for place, (convolution, norm) in enumerate(
            zip(self.convolutions, self.norms, strict=True)
        ):
            hidden = norm(convolution(hidden))
            hidden = F.relu(hidden) if place < last else hidden
        # Not the stride of the convolution: in PyTorch 2.13, the gradient of its weights is written
        # out of bounds with AVX2, for maps of fewer than 8 channels that are stored channels last.
        kept = maps if self.stride == 1 else maps[:, :, :: self.stride, :: self.stride]
        return F.relu(self.shortcut(kept) + self.attention(hidden))


class ResidualNetwork(nn.Module):
    """A stem and stages of residual blocks, ``[B, C, H, W] -> [B, dim, H', W']``.

    Args:
        channels: channels C of the images.
        options: sizes and options.

    Raises:
        ValueError: grey images are scaled as ImageNet's.

    Example:
        >>> network = ResidualNetwork(3, ResidualOptions(widths=(8, 16), blocks=(1, 1)))
        >>> network(torch.zeros(2, 3, 32, 32)).shape, network.grid(32, 32)
        (torch.Size([2, 16, 16, 16]), (16, 16))
    """

    def __init__(self, channels: int, options: ResidualOptions) -> None:
        super().__init__()
        if options.scaling == "imagenet" and channels != 3:
            raise ValueError("the scaling 'imagenet' is for colours: set data.colours = 'rgb'")
        self.scaling = options.scaling
        self.large = options.stem == "large"
        first = options.widths[0]
        self.stem = _conv(channels, first, 7, 2) if self.large else _conv(channels, first, 3)
        self.stem_norm = _norm(options.norm, first)
        blocks, inputs = [], first
        self.strides = []
        for stage, (width, count) in enumerate(zip(options.widths, options.blocks, strict=True)):
            for number in range(count):
                stride = 2 if stage and not number else 1
                block = ResidualBlock(inputs, width, stride, options)
                blocks.append(block)
                self.strides.append(stride)
                inputs = block.outputs
        self.blocks = nn.ModuleList(blocks)
        self.dim = inputs

    def forward(self, images: Tensor) -> Tensor:
        """Features of images with values from −1 to 1."""
        if self.scaling == "imagenet":
            mean, spread = (images.new_tensor(one)[:, None, None] for one in IMAGENET)
            images = ((images + 1) / 2 - mean) / spread
        hidden = F.relu(self.stem_norm(self.stem(images)))
        hidden = F.max_pool2d(hidden, 3, 2, 1) if self.large else hidden
        for block in self.blocks:
            hidden = block(hidden)
        return hidden

    def grid(self, rows: int, columns: int, blocks: int | None = None) -> tuple[int, int]:
        """Rows and columns of the output for images of a size.

        Args:
            rows: of the images.
            columns: of the images.
            blocks: of the output of the first blocks; by default, of all.
        """
        halvings = [2, 2] if self.large else []
        halvings += [stride for stride in self.strides[:blocks] if stride == 2]
        for _ in halvings:
            rows, columns = -(-rows // 2), -(-columns // 2)
        return rows, columns

    def gates(self, shape: tuple[int, int], name: str) -> dict[str, tuple[str, str]]:
        """Module → axes of the attention of all blocks; see :meth:`grids` for the axes.

        Args:
            shape: rows and columns of the images.
            name: the network's name in the model.
        """
        found: dict[str, tuple[str, str]] = {}
        for number, block in enumerate(self.blocks):
            assert isinstance(block, ResidualBlock)
            places = axis_of(self.grid(*shape, number + 1))
            own = f"{name}.blocks.{number}.attention"
            found |= gate_axes(block.attention, own, places)
        return found

    def grids(self, shape: tuple[int, int]) -> dict[str, tuple[int, int]]:
        """Axis → rows and columns, of the outputs of all blocks."""
        each = [self.grid(*shape, number + 1) for number in range(len(self.blocks))]
        return {axis_of(grid): grid for grid in each}


def axis_of(grid: tuple[int, int]) -> str:
    """The name of the axis of the places of a grid."""
    return f"image, {grid[0]} × {grid[1]}"
