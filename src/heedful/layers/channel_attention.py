"""Attention to the channels and the places of feature maps.

    se      x ∘ σ(W₂ ReLU(W₁ mean(x)))                      Hu et al. 2018, equations 2 to 4
    cbam    x ← x ∘ σ(M(mean(x)) + M(max(x)))               over channels, M = W₂ ReLU(W₁ ·)
            x ∘ σ(conv₇([mean_C(x); max_C(x)]))             over places; Woo et al. 2018, 1 to 3
    eca     x ∘ σ(conv_k(mean(x)))                          k neighbours; Wang et al. 2020, 7 to 12

The weights are not normalized: each is between 0 and 1. :func:`heedful.watch` records them.

Hu, Shen, Sun 2018, "Squeeze-and-Excitation Networks"; Woo, Park, Lee, Kweon 2018, "CBAM:
Convolutional Block Attention Module"; Wang, Wu, Zhu, Li, Zuo, Hu 2020, "ECA-Net: Efficient Channel
Attention for Deep Convolutional Neural Networks".
Shapes: B images, C channels, H rows, W columns.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention.watching import Watchable

ChannelAttention = Literal["none", "se", "cbam", "eca"]


class SqueezeExcitation(Watchable):
    """Weighs each channel by what the means of all channels say.

    Args:
        channels: C.
        reduction: by how much the hidden layer is narrower than C.

    Source: Hu et al. 2018, section 3.

    Example:
        >>> SqueezeExcitation(8, 4)(torch.zeros(2, 8, 5, 5)).shape
        torch.Size([2, 8, 5, 5])
    """

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        hidden = max(1, channels // reduction)
        self.squeeze, self.excite = nn.Linear(channels, hidden), nn.Linear(hidden, channels)

    def forward(self, maps: Tensor) -> Tensor:
        gates = torch.sigmoid(self.excite(F.relu(self.squeeze(maps.mean((2, 3))))))
        return _gated_by_channel(self, maps, gates)


class EfficientChannelAttention(Watchable):
    """Weighs each channel by the means of neighbouring channels.

    Args:
        channels: C; the number of neighbours is ``(log₂ C + 1) / 2``, rounded down, and 1 more if
            that is even (equation 12, with γ = 2 and b = 1).

    Source: Wang et al. 2020, section 3.2.

    Example:
        >>> EfficientChannelAttention(64).neighbours.kernel_size
        (3,)
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        size = int(abs((math.log2(channels) + 1) / 2))
        size += size % 2 == 0
        self.neighbours = nn.Conv1d(1, 1, size, padding=size // 2, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        gates = torch.sigmoid(self.neighbours(maps.mean((2, 3)).unsqueeze(1)).squeeze(1))
        return _gated_by_channel(self, maps, gates)


class ChannelGate(Watchable):
    """Weighs each channel by the means and the maxima of all channels (Woo et al. 2018, eq. 2)."""

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        hidden = max(1, channels // reduction)
        self.squeeze, self.excite = nn.Linear(channels, hidden), nn.Linear(hidden, channels)

    def forward(self, maps: Tensor) -> Tensor:
        both = torch.stack([maps.mean((2, 3)), maps.amax((2, 3))])
        gates = torch.sigmoid(self.excite(F.relu(self.squeeze(both))).sum(0))
        return _gated_by_channel(self, maps, gates)


class SpatialGate(Watchable):
    """Weighs each place by the mean and the maximum of its channels and those around it (eq. 3)."""

    def __init__(self, kernel_size: int = 7) -> None:
        super().__init__()
        self.around = nn.Conv2d(2, 1, kernel_size, padding=kernel_size // 2)

    def forward(self, maps: Tensor) -> Tensor:
        both = torch.stack([maps.mean(1), maps.amax(1)], 1)
        gates = torch.sigmoid(self.around(both))
        if self.watched_at_all:
            self.show_whole(gates.flatten(2).unsqueeze(1))
        return maps * gates


class ConvolutionalBlockAttention(nn.Module):
    """Weighs channels, then places (CBAM).

    Args:
        channels: C.
        reduction: by how much the hidden layer is narrower than C.

    Source: Woo et al. 2018, equation 1.

    Example:
        >>> ConvolutionalBlockAttention(8, 4)(torch.zeros(2, 8, 5, 5)).shape
        torch.Size([2, 8, 5, 5])
    """

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        self.channel, self.spatial = ChannelGate(channels, reduction), SpatialGate()

    def forward(self, maps: Tensor) -> Tensor:
        result: Tensor = self.spatial(self.channel(maps))
        return result


def _gated_by_channel(module: Watchable, maps: Tensor, gates: Tensor) -> Tensor:
    """``maps [B, C, H, W]`` times ``gates [B, C]``."""
    if module.watched_at_all:
        module.show_whole(gates[:, None, None])
    return maps * gates[..., None, None]


def channel_attention(kind: ChannelAttention, channels: int, reduction: int) -> nn.Module:
    """The attention of a kind; for "none", a module that returns its input."""
    if kind == "se":
        return SqueezeExcitation(channels, reduction)
    if kind == "cbam":
        return ConvolutionalBlockAttention(channels, reduction)
    return EfficientChannelAttention(channels) if kind == "eca" else nn.Identity()


def gate_axes(module: nn.Module, name: str, places: str) -> dict[str, tuple[str, str]]:
    """Module → axes of the gates in an attention of :func:`channel_attention`.

    Args:
        module: the attention.
        name: its name in the model.
        places: the axis of the places.
    """
    if isinstance(module, ConvolutionalBlockAttention):
        return {f"{name}.channel": ("gate", _channels(name)), f"{name}.spatial": ("gate", places)}
    return {} if isinstance(module, nn.Identity) else {name: ("gate", _channels(name))}


def _channels(name: str) -> str:
    """Each stage has its own number of channels."""
    return f"channels of {name.rpartition('.')[0]}"
