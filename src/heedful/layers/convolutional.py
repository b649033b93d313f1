"""Gated convolutions over sequences, each with attention.

Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", sections 3.2 to 3.5. A
convolution of width k is a linear map of the k concatenated positions of a window.
Shapes: B batch, L positions, S source positions, E embedding, D hidden, k kernel.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import Memory
from heedful.attention.settings import AttentionSettings
from heedful.layers.dropout import Dropout

_HALF = math.sqrt(0.5)


class Sizes(NamedTuple):
    """Sizes that all blocks of a network share."""

    embedding: int
    hidden: int
    kernel: int
    dropout: float
    """Dropout on the input of each convolution."""
    weight_norm: bool


class Affine(NamedTuple):
    """``W x + b`` with the current weights."""

    weight: Tensor
    bias: Tensor

    def __call__(self, inputs: Tensor) -> Tensor:
        """``[.., in] -> [.., out]``"""
        return F.linear(inputs, self.weight, self.bias)


class NormalisedLinear(nn.Module):
    """A linear map with weight normalisation: each row of its matrix is ``g v / ‖v‖``.

    Salimans and Kingma 2016, "Weight Normalization", equation 2. The initial weights are normal
    with the given variance, and ``g`` is initially ``‖v‖``.

    Args:
        input_dim: width of the input.
        output_dim: width of the output.
        variance: variance of the initial weights, times ``input_dim`` (section 3.5 of Gehring et
            al.).
        weight_norm: whether to normalise weights; otherwise this is an ordinary linear map.
    """

    def __init__(
        self, input_dim: int, output_dim: int, *, variance: float, weight_norm: bool
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(output_dim, input_dim))
        nn.init.normal_(self.weight, std=math.sqrt(variance / input_dim))
        self.bias = nn.Parameter(torch.zeros(output_dim))
        self.gain = nn.Parameter(self.weight.detach().norm(dim=1)) if weight_norm else None

    def now(self) -> Affine:
        """The map with its current weights, normalised once for many steps."""
        if self.gain is None:
            return Affine(self.weight, self.bias)
        lengths = torch.linalg.vector_norm(self.weight, dim=1, keepdim=True)
        return Affine(self.weight * (self.gain.unsqueeze(1) / lengths), self.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """``[.., input_dim] -> [.., output_dim]``"""
        return self.now()(inputs)


def convolve(padded: Tensor, width: int, kernel: Affine | nn.Module, dilation: int = 1) -> Tensor:
    """``[B, L + (k − 1) δ, D] -> [B, L, out]``: the kernel over each window of ``width`` positions,
    which are ``dilation`` δ apart."""
    length = padded.shape[1] - (width - 1) * dilation
    # Concatenate the windows for one large product: on the CPU, forward and backward are faster
    # than a convolution with channels last.
    firsts = range(0, width * dilation, dilation)
    windows = [padded[:, first : first + length] for first in firsts]
    result: Tensor = kernel(torch.cat(windows, dim=-1))
    return result


def convolution(sizes: Sizes) -> NormalisedLinear:
    """The kernel ``[2 D, k D]`` of a convolution before a gated linear unit.

    A gate that is half open on average divides the variance by 4, hence the factor 4. Dropout
    before it, which keeps inputs with probability p, multiplies the variance by 1/p.
    """
    return NormalisedLinear(
        sizes.kernel * sizes.hidden,
        2 * sizes.hidden,
        variance=4 * (1 - sizes.dropout),
        weight_norm=sizes.weight_norm,
    )


class ConvolutionalEncoderLayer(nn.Module):
    """``√½ (x + GLU(W [x_{i−k/2} … x_{i+k/2}] + b))``, padded with zeros at both ends."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.kernel = sizes.kernel
        self.convolution = convolution(sizes)
        self.drop = Dropout(sizes.dropout)

    def forward(self, hidden: Tensor, real: Tensor) -> Tensor:
        """``[B, L, D] -> [B, L, D]``; ``real [B, L, 1]`` is 0 at padding, which counts as zero."""
        left = (self.kernel - 1) // 2
        padded = F.pad(self.drop(hidden) * real, (0, 0, left, self.kernel - 1 - left))
        gated = F.glu(convolve(padded, self.kernel, self.convolution.now()))
        return (hidden + gated) * _HALF


class SourceMemory(NamedTuple):
    """The encoder's output for the decoder layers."""

    memories: tuple[Memory, ...]
    """For each layer, its memory of keys z and values √½ (z + e) ``[B, S, E]``."""
    allowed: Tensor
    """Mask of source positions ``[B, 1, S]``, true = may attend."""
    scale: Tensor
    """√m of each row's length m ``[B, 1, 1]``: restores the variance after a mean of m vectors."""


class DecoderMaps(NamedTuple):
    """A decoder layer's maps with their current weights."""

    convolution: Affine
    query: Affine
    context: Affine


class ConvolutionalDecoderLayer(nn.Module):
    """A causal gated convolution, attention, and the residual connection around both.

    h = GLU(W [x_{i−k+1} … x_i] + b)     d = √½ (W_d h + b_d + g)
    c = √m Σ_j α(d, z_j) √½ (z_j + e_j)     x′ = √½ (x + √½ (h + W_c c + b_c))
    """

    sharded_alone = False  # results of `now` hold weights

    def __init__(self, sizes: Sizes, attention: AttentionSettings) -> None:
        super().__init__()
        self.kernel = sizes.kernel
        self.convolution = convolution(sizes)
        self.drop = Dropout(sizes.dropout)
        self.query = NormalisedLinear(
            sizes.hidden, sizes.embedding, variance=1, weight_norm=sizes.weight_norm
        )
        self.attention = attention.build_one(sizes.embedding, sizes.embedding)
        self.context = NormalisedLinear(
            sizes.embedding, sizes.hidden, variance=1, weight_norm=sizes.weight_norm
        )

    def now(self) -> DecoderMaps:
        """The layer's maps with their current weights, for one call or many."""
        return DecoderMaps(self.convolution.now(), self.query.now(), self.context.now())

    def forward(
        self,
        hidden: Tensor,
        embedded: Tensor,
        past: Tensor,
        memory: Memory,
        source: SourceMemory,
        maps: DecoderMaps,
    ) -> tuple[Tensor, Tensor]:
        """Compute one or more positions.

        Args:
            hidden: the layer's input x at the new positions ``[B, L, D]``.
            embedded: their embeddings g ``[B, L, E]``.
            past: the convolution's input at the previous k − 1 positions ``[B, k − 1, D]``.
            memory: of this layer.
            source: the encoder's output.
            maps: the result of :meth:`now`.

        Returns:
            The layer's output ``[B, L, D]`` and the past for the next positions.
        """
        padded = torch.cat([past.to(hidden.dtype), self.drop(hidden)], dim=1)
        gated = F.glu(convolve(padded, self.kernel, maps.convolution))
        query = (maps.query(gated) + embedded) * _HALF
        context = self.attention.read(query, memory, source.allowed) * source.scale
        attentive = (gated + maps.context(context)) * _HALF
        return (hidden + attentive) * _HALF, padded[:, hidden.shape[1] :]


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


def scale_gradient(inputs: Tensor, factor: float) -> Tensor:
    """``inputs`` unchanged; their gradient is multiplied by ``factor``."""
    result: Tensor = _ScaledGradient.apply(inputs, factor)  # type: ignore[no-untyped-call]
    return result
