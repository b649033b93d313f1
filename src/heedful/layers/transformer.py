"""The Transformer's blocks.

Vaswani et al. 2017, "Attention Is All You Need", section 3.1 and 3.3. Post-norm as there,
``norm(x + sublayer(x))``; pre-norm, ``x + sublayer(norm(x))``, trains without warm-up when deep
(Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture"). RMS norm: Zhang,
Sennrich 2019, "Root Mean Square Layer Normalization", equation 4. Gated feed-forward networks:
Shazeer 2020, "GLU Variants Improve Transformer", section 2.
Shapes: B batch, L positions, D width.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import Memory, MultiHeadAttention
from heedful.attention.masks import Mask
from heedful.attention.settings import AttentionSettings, Role
from heedful.attention.state_heads import StateAttention
from heedful.attention.step_memory import StepMemory
from heedful.layers.caches import Cache, LayerCaches, SumCache
from heedful.layers.dropout import Dropout

Activation = Literal["relu", "gelu", "gelu-tanh", "silu"]
Norm = Literal["layer", "rms"]


def activate(hidden: Tensor, activation: Activation) -> Tensor:
    """The activation function of a feed-forward network.

    ``gelu`` is ``x Φ(x)``, ``gelu-tanh`` its approximation (Hendrycks and Gimpel 2016, section 2);
    ``silu`` is ``x σ(x)``, also called swish.
    """
    if activation == "relu":
        return F.relu(hidden)
    if activation == "silu":
        return F.silu(hidden)
    return F.gelu(hidden, approximate="tanh" if activation == "gelu-tanh" else "none")


class BlockOptions(NamedTuple):
    """Options that all blocks of a Transformer share."""

    dim: int
    inner: int
    """Width of the feed-forward network's hidden layer; 0 for an encoder layer without one."""
    dropout: float = 0.0
    """Dropout on the sum of embeddings and on each sublayer's output (section 5.4)."""
    inner_dropout: float = 0.0
    pre_norm: bool = False
    activation: Activation = "relu"
    norm_epsilon: float = 1e-5
    bias: bool = True
    norm: Norm = "layer"
    gated: bool = False
    """Whether the feed-forward network has a gate."""


def build_norm(options: BlockOptions) -> nn.Module:
    """The norm of vectors ``[.., D]``: ``g ⊙ (x − mean(x)) / √(var(x) + ε) + b``, or RMS norm,
    ``g ⊙ x / √(mean(x²) + ε)``."""
    if options.norm == "rms":
        return nn.RMSNorm(options.dim, eps=options.norm_epsilon)
    return nn.LayerNorm(options.dim, eps=options.norm_epsilon, bias=options.bias)


class FeedForward(nn.Module):
    """``W₂ φ(W₁ h + b₁) + b₂`` at each position, ``[.., D] -> [.., D]`` (section 3.3, φ = ReLU).

    With a gate, ``W₂ (φ(W h + b) ⊙ (W₁ h + b₁)) + b₂`` (Shazeer 2020, equation 6).
    """

    def __init__(self, options: BlockOptions) -> None:
        super().__init__()
        self.expand = nn.Linear(options.dim, options.inner, bias=options.bias)
        self.contract = nn.Linear(options.inner, options.dim, bias=options.bias)
        self.gate = (
            nn.Linear(options.dim, options.inner, bias=options.bias) if options.gated else None
        )
        self.dropout = Dropout(options.inner_dropout)
        self.activation: Activation = options.activation
        for part in (self.expand, self.contract, self.gate):
            if part is None:
                continue
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        inner: Tensor = self.expand(hidden)
        if self.gate is None:
            inner = activate(inner, self.activation)
        else:
            inner = activate(self.gate(hidden), self.activation) * inner
        result: Tensor = self.contract(self.dropout(inner))
        return result


class Residual(nn.Module):
    """The wrapper of a sublayer: residual connection, norm, dropout on its output."""

    def __init__(self, options: BlockOptions) -> None:
        super().__init__()
        self.norm = build_norm(options)
        self.dropout = Dropout(options.dropout)
        self.pre_norm = options.pre_norm

    def forward(self, hidden: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        result: Tensor
        if self.pre_norm:
            result = hidden + self.dropout(sublayer(self.norm(hidden)))
            return result
        result = self.norm(hidden + self.dropout(sublayer(hidden)))
        return result


SelfAttention = MultiHeadAttention | StateAttention


def _attend_to_self(
    heads: SelfAttention, x: Tensor, mask: Mask | Tensor | None, cache: Cache | None
) -> Tensor:
    if isinstance(heads, StateAttention):
        if cache is None:
            result: Tensor = heads(x, x, mask=mask)
            return result
        assert isinstance(cache, SumCache)
        return cache.step(heads, x)
    assert not isinstance(cache, SumCache)
    memory = heads.remember(x, first=0 if cache is None else cache.length)
    return heads.read(x, memory if cache is None else cache.append(memory), mask)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, ``[B, L, D] -> [B, L, D]``.

    With a causal mask and a cache it is the block of a decoder-only model. Without a feed-forward
    network it is attention only (Elhage et al. 2021, "A Mathematical Framework for Transformer
    Circuits").

    Args:
        options: sizes and options.
        attention: of its self-attention.
        causal: whether a position attends to itself and earlier ones only.
        number: number of the layer, counted from 1.
    """

    def __init__(
        self,
        options: BlockOptions,
        attention: AttentionSettings,
        *,
        causal: bool = False,
        number: int = 1,
    ) -> None:
        super().__init__()
        role: Role = "causal" if causal else "self"
        self.self_attention = attention.build_self(
            options.dim, role, bias=options.bias, layer=number
        )
        self.feed_forward = FeedForward(options) if options.inner else None
        self.around_self = Residual(options)
        self.around_feed_forward = Residual(options) if options.inner else None

    def forward(
        self, hidden: Tensor, mask: Mask | Tensor | None, cache: Cache | None = None
    ) -> Tensor:
        """``[B, L, D] -> [B, L, D]``.

        Args:
            hidden: all positions; with a cache, only the new ones.
            mask: which positions a position may attend to.
            cache: keys and values of earlier steps; this step is appended.
        """
        hidden = self.around_self(
            hidden, lambda x: _attend_to_self(self.self_attention, x, mask, cache)
        )
        if self.feed_forward is None or self.around_feed_forward is None:
            return hidden
        result: Tensor = self.around_feed_forward(hidden, self.feed_forward)
        return result


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, the feed-forward network.

    Args:
        options: sizes and options.
        attention: of its self-attention.
        cross: of its attention to the source.
        number: number of the layer, counted from 1.
    """

    parts_called_apart: ClassVar = {"cross_attention": ("remember", "read")}

    def __init__(
        self,
        options: BlockOptions,
        attention: AttentionSettings,
        cross: AttentionSettings,
        *,
        number: int = 1,
    ) -> None:
        super().__init__()
        dim, bias = options.dim, options.bias
        self.self_attention = attention.build_self(dim, "causal", bias=bias, layer=number)
        self.cross_attention = cross.build(dim, "cross", bias=bias, layer=number)
        self.feed_forward = FeedForward(options)
        self.around_self = Residual(options)
        self.around_cross = Residual(options)
        self.around_feed_forward = Residual(options)

    def forward(
        self,
        hidden: Tensor,
        mask: Mask | Tensor | None,
        source: Memory | StepMemory,
        source_mask: Mask | Tensor | None,
        cache: Cache | None = None,
    ) -> Tensor:
        """``[B, L, D] -> [B, L, D]``.

        Args:
            hidden: target positions ``[B, L, D]``; with a cache, only the new ones.
            mask: which target positions a position may attend to.
            source: the encoder's output, projected by ``cross_attention.remember``.
            source_mask: which source positions may be attended to.
            cache: keys and values of earlier steps; this step is appended.
        """
        hidden = self.around_self(
            hidden, lambda x: _attend_to_self(self.self_attention, x, mask, cache)
        )
        hidden = self.around_cross(
            hidden, lambda x: self.cross_attention.read(x, source, source_mask)
        )
        result: Tensor = self.around_feed_forward(hidden, self.feed_forward)
        return result


def layer_caches(
    layers: Iterable[EncoderLayer | DecoderLayer], rows: int, *, in_place: bool = False
) -> LayerCaches:
    """The caches of the self-attention of layers; see :class:`heedful.layers.caches.LayerCaches`.

    Args:
        layers: the layers, first to last.
        rows: number of rows of the search.
        in_place: whether to read steps in place.
    """
    kinds = [isinstance(layer.self_attention, StateAttention) for layer in layers]
    linear = [number for number, one in enumerate(kinds) if one]
    return LayerCaches(len(kinds), rows, in_place=in_place, linear=linear)
