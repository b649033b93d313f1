"""Blocks of the Perceiver: an array of one size reads an array of any other.

Jaegle et al. 2021, "Perceiver: General Perception with Iterative Attention", section 3.1; Jaegle et
al. 2022, "Perceiver IO: A General Architecture for Structured Inputs & Outputs", section 3.1.
Shapes: B batch, N queries of width D, K inputs of width E.
"""

from torch import Tensor, nn

from heedful.attention.masks import Mask
from heedful.attention.settings import AttentionSettings
from heedful.layers.dropout import Dropout
from heedful.layers.transformer import BlockOptions, FeedForward


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
