"""Residual blocks of dilated convolutions.

Kalchbrenner et al. 2016, "Neural Machine Translation in Linear Time", sections 3.3 to 3.6.
Shapes: B batch, L positions, W width of a block, D = W / 2 width of its convolution, k kernel,
δ dilation.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.layers.convolutional import convolve
from heedful.layers.dropout import Dropout

Unit = Literal["relu", "multiplicative"]
_GATES = 4


class BlockSizes(NamedTuple):
    """Sizes and options that all blocks of a network share."""

    width: int
    """Width W of a block's input and output, even."""
    kernel: int
    unit: Unit
    dropout: float
    """Dropout on what a block adds to its input."""


class MultiplicativeUnit(nn.Module):
    """``MU(h) = g₁ ∘ tanh(g₂ ∘ h + g₃ ∘ u)``, with three gates and an update from a convolution.

    ``g_i = σ(norm_i(W_i ∗ h))`` and ``u = tanh(norm_4(W_4 ∗ h))``. Kalchbrenner et al. 2016,
    "Video Pixel Networks", equation 6; each activation is preceded by layer normalization, as in
    section 3.6 of "Neural Machine Translation in Linear Time".
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(_GATES, width))
        self.bias = nn.Parameter(torch.zeros(_GATES, width))

    def forward(self, hidden: Tensor, convolved: Tensor) -> Tensor:
        """``hidden [B, L, D]`` and its convolutions ``[B, L, 4 D]`` ``-> [B, L, D]``."""
        parts = convolved.unflatten(-1, self.gain.shape)
        normal = F.layer_norm(parts, self.gain.shape[1:]) * self.gain + self.bias
        gates = torch.sigmoid(normal[..., :3, :])
        first, second, third = gates.unbind(-2)
        return first * torch.tanh(second * hidden + third * torch.tanh(normal[..., 3, :]))


class DilatedBlock(nn.Module):
    """A 1 × 1 convolution to half the width, a dilated one, a 1 × 1 back, around them a residual.

    With rectified units (Figure 3, left):

        a = W_a relu(norm(x)) + b_a    h = relu(norm(a))
        y = x + W_c relu(norm(Σ_j W_j h_{i + jδ} + b)) + b_c

    With a multiplicative unit (Figure 3, right), whose convolution reads a:

        y = x + W_c MU(a) + b_c

    The convolution of a causal block reads the current position and k − 1 before it, δ apart.
    Otherwise it reads positions on both sides, of which one more follows if k is even.

    Args:
        sizes: shared by all blocks.
        dilation: δ.
    """

    layer_methods = ("forward", "read")

    def __init__(self, sizes: BlockSizes, dilation: int) -> None:
        super().__init__()
        wide, narrow = sizes.width, sizes.width // 2
        self.kernel, self.dilation, self.narrow = sizes.kernel, dilation, narrow
        outputs = _GATES * narrow if sizes.unit == "multiplicative" else narrow
        self.first_norm = nn.LayerNorm(wide)
        self.enter = rectified_linear(wide, narrow)
        self.convolution = rectified_linear(sizes.kernel * narrow, outputs)
        self.leave = rectified_linear(narrow, wide)
        self.drop = Dropout(sizes.dropout)
        self.unit: MultiplicativeUnit | None = None
        if sizes.unit == "multiplicative":
            self.unit = MultiplicativeUnit(narrow)
        else:
            self.second_norm, self.third_norm = nn.LayerNorm(narrow), nn.LayerNorm(narrow)

    @property
    def reach(self) -> int:
        """Positions from the first to the last that the convolution reads, without one of them."""
        return (self.kernel - 1) * self.dilation

    def before(self, rows: int) -> Tensor:
        """The convolution's input before the first position: zeros ``[rows, (k − 1) δ, D]``."""
        like = self.first_norm.weight  # FSDP2 may hold it in parts
        shape = rows, self.reach, self.narrow
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def read(self, hidden: Tensor, real: Tensor) -> Tensor:
        """``[B, L, W] -> [B, L, W]``, reading both sides.

        Positions where ``real [B, L, 1]`` is 0 count as zero, like those beyond both ends.
        """
        inner = self._inner(hidden) * real
        left = (self.kernel - 1) // 2 * self.dilation
        return self._finish(hidden, inner, F.pad(inner, (0, 0, left, self.reach - left)))

    def forward(self, hidden: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one or more positions of a causal block.

        Args:
            hidden: the block's input at the new positions ``[B, L, W]``.
            past: the convolution's input at the (k − 1) δ positions before ``[B, (k − 1) δ, D]``.

        Returns:
            The block's output ``[B, L, W]`` and the past of the next positions.
        """
        inner = self._inner(hidden)
        padded = torch.cat([past.to(inner.dtype), inner], dim=1)
        return self._finish(hidden, inner, padded), padded[:, hidden.shape[1] :]

    def _inner(self, hidden: Tensor) -> Tensor:
        """The convolution's input ``[B, L, D]``."""
        inner: Tensor = self.enter(torch.relu(self.first_norm(hidden)))
        return inner if self.unit is not None else torch.relu(self.second_norm(inner))

    def _finish(self, hidden: Tensor, inner: Tensor, padded: Tensor) -> Tensor:
        convolved = convolve(padded, self.kernel, self.convolution, self.dilation)
        if self.unit is not None:
            active = self.unit(inner, convolved)
        else:
            active = torch.relu(self.third_norm(convolved))
        result: Tensor = hidden + self.drop(self.leave(active))
        return result


class Readout(nn.Module):
    """``relu(norm(W x + b))``: the states that tokens are predicted from (section 3.6)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[.., W] -> [.., W]``"""
        return torch.relu(self.norm(self.linear(hidden)))


def dilated_blocks(sizes: BlockSizes, layers: int, dilations: tuple[int, ...]) -> nn.ModuleList:
    """``layers`` blocks; their dilations repeat."""
    every = (dilations[layer % len(dilations)] for layer in range(layers))
    return nn.ModuleList(DilatedBlock(sizes, dilation) for dilation in every)


def advance(
    blocks: nn.ModuleList, hidden: Tensor, past: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Compute the next positions of causal blocks: their output, and the new past of each."""
    after = []
    for block, before in zip(blocks, past, strict=True):
        hidden, own = block(hidden, before)
        after.append(own)
    return hidden, tuple(after)


def rectified_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear map that keeps the variance of rectified inputs (He et al. 2015, equation 10)."""
    linear = nn.Linear(inputs, outputs)
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    nn.init.zeros_(linear.bias)
    return linear
