"""Blocks of the Perceiver: an array of one size reads an array of any other.

Jaegle et al. 2021, "Perceiver: General Perception with Iterative Attention", section 3.1; Jaegle et
al. 2022, "Perceiver IO: A General Architecture for Structured Inputs & Outputs", section 3.1.
Shapes: B batch, N queries of width D, K inputs of width E.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from heedful.attention.masks import Mask
from heedful.attention.settings import AttentionSettings
from heedful.layers.dropout import Dropout
from heedful.layers.transformer import BlockOptions, EncoderLayer, FeedForward


class ReadingLayer(nn.Module):
    """Cross-attention, then a feed-forward network, both pre-norm.

        h = q + Attn(norm(q), norm(x), norm(x)),   h + FFN(norm(h))

    The cost is N · K, and not K².

    Args:
        options: sizes and options of the queries.
        input_dim: width E of what is read.
        attention: the parts of the attention.
        residual: whether the queries are added to what they read. Queries that only say what to
            read, as a position, are not (Perceiver IO, section 3.1).
        number: number of the layer, counted from 1.

    Example:
        >>> import torch
        >>> options = BlockOptions(dim=8, inner=16)
        >>> layer = ReadingLayer(options, 5, AttentionSettings(heads=2))
        >>> layer(torch.zeros(4, 3, 8), torch.zeros(4, 100, 5)).shape
        torch.Size([4, 3, 8])
    """

    def __init__(
        self,
        options: BlockOptions,
        input_dim: int,
        attention: AttentionSettings,
        *,
        residual: bool = True,
        number: int = 1,
    ) -> None:
        super().__init__()
        self.residual = residual
        self.query_norm = nn.LayerNorm(options.dim, eps=options.norm_epsilon)
        self.input_norm = nn.LayerNorm(input_dim, eps=options.norm_epsilon)
        self.attention = attention.build(options.dim, "cross", key_dim=input_dim, layer=number)
        self.feed_forward_norm = nn.LayerNorm(options.dim, eps=options.norm_epsilon)
        self.feed_forward = FeedForward(options)
        self.dropout = Dropout(options.dropout)

    def forward(self, queries: Tensor, inputs: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        """``[B, N, D] -> [B, N, D]``.

        Args:
            queries: ``[B, N, D]``.
            inputs: what is read, ``[B, K, E]``.
            mask: which inputs exist; broadcasts to ``[B, heads, N, K]``.
        """
        read = self.dropout(
            self.attention(self.query_norm(queries), self.input_norm(inputs), mask=mask)
        )
        hidden = queries + read if self.residual else read
        result: Tensor = hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
        return result


class LatentArray(nn.Module):
    """Latent vectors that read inputs once or several times, with layers of their own after each.

    All reads after the first have the same weights, and so have all repetitions of the layers
    (Jaegle et al. 2021, section 3.1).

    Parameters: ``latents [N, D]``, drawn from N(0, 0.02²), cut at two standard deviations;
    ``reads``; ``layers``.

    Args:
        options: sizes and options of the latents.
        input_dim: width E of what is read.
        count: number of latents N.
        reads: how often the inputs are read.
        cross: the parts of the attention to the inputs.
        layers: the attention of each layer.

    Example:
        >>> options, own = BlockOptions(dim=8, inner=16, pre_norm=True), AttentionSettings(heads=2)
        >>> array = LatentArray(options, 5, count=3, reads=2, cross=own, layers=[own])
        >>> array(torch.zeros(4, 100, 5)).shape
        torch.Size([4, 3, 8])
    """

    def __init__(
        self,
        options: BlockOptions,
        input_dim: int,
        *,
        count: int,
        reads: int,
        cross: AttentionSettings,
        layers: Sequence[AttentionSettings],
    ) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.empty(count, options.dim))
        self.repeats = reads
        self.reads = nn.ModuleList(
            ReadingLayer(options, input_dim, cross, number=number)
            for number in range(1, 1 + min(2, reads))
        )
        self.layers = nn.ModuleList(
            EncoderLayer(options, own, number=number) for number, own in enumerate(layers, 1)
        )
        self.reset_latents()

    def reset_latents(self) -> None:
        """Draw new latents."""
        nn.init.trunc_normal_(self.latents, std=0.02, a=-0.04, b=0.04)

    def forward(self, inputs: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        """``[B, K, E] -> [B, N, D]``.

        Args:
            inputs: what is read.
            mask: which inputs exist.
        """
        latents = self.latents.to(inputs.dtype).expand(len(inputs), -1, -1)
        for number in range(self.repeats):
            latents = self.reads[min(number, 1)](latents, inputs, mask)
            for layer in self.layers:
                latents = layer(latents, None)
        return latents

    def axes(self, inputs: str) -> dict[str, tuple[str, ...]]:
        """Module → the axes of its queries, its keys and, if repeated, its calls.

        Args:
            inputs: the axis of the inputs.
        """
        repeated = ("reads",) if self.repeats > 1 else ()
        again = ("reads",) if self.repeats > 2 else ()
        found: dict[str, tuple[str, ...]] = {}
        for number in range(len(self.layers)):
            found[f"layers.{number}.self_attention"] = ("latents", "latents", *repeated)
        found["reads.0.attention"] = ("latents", inputs)
        if self.repeats > 1:
            found["reads.1.attention"] = ("latents", inputs, *again)
        return found


def fourier_features(rows: int, columns: int, bands: int) -> Tensor:
    """Sines, cosines and coordinates of the cells of a grid, ``[rows · columns, 2 (2 bands + 1)]``.

        sin(π f_k x), cos(π f_k x), x    for both coordinates x in [−1, 1]

    The frequencies f_k are equally spaced from 1 to half the number of cells in this direction (the
    Nyquist frequency).

    Source: Jaegle et al. 2021, section 3.2.

    Example:
        >>> fourier_features(2, 3, bands=4).shape
        torch.Size([6, 18])
    """
    parts = []
    for along, size in enumerate((rows, columns)):
        places = torch.linspace(-1, 1, size, dtype=torch.float64) if size > 1 else torch.zeros(1)
        frequencies = torch.linspace(1, max(1.0, size / 2), bands, dtype=torch.float64)
        angles = math.pi * places.double()[:, None] * frequencies
        own = torch.cat([angles.sin(), angles.cos(), places.double()[:, None]], 1)
        spread = (own[:, None] if along == 0 else own[None]).expand(rows, columns, -1)
        parts.append(spread.reshape(rows * columns, -1))
    return torch.cat(parts, 1).float()
