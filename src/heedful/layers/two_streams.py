"""XLNet's layer: two streams of states that attend with the same parameters.

    h_i ← Attn(Q = h_i, K = V = [m; h_j of what i may see, itself included])       content
    g_i ← Attn(Q = g_i, K = V = [m; h_j of what i may see, without itself])        query
    e_ij = ((q_i + u)ᵀ k_j + (q_i + v)ᵀ W_R R_(i−j) + (q_i + b)ᵀ s_ij) / √d

h knows the token at its place, g knows only the place. m are states of earlier text, which get no
gradient. u, v and W_R are those of Transformer-XL; s_ij is one of two vectors: for keys in the same
segment as the query, and for others. Yang et al. 2019, "XLNet: Generalized Autoregressive
Pretraining for Language Understanding", sections 2.3 to 2.5.
Shapes: B batch, L places, N places of the query stream, M earlier states, K = M + L keys, Q queries
(L or N), H heads, d width of a head, D width, T distances.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import Memory
from heedful.attention.mechanism import ProjectedQuery
from heedful.attention.modules import Attentive
from heedful.attention.positions.rotary import rotary_angles
from heedful.attention.positions.transformer_xl import TransformerXL
from heedful.attention.sdpa import masked_attention
from heedful.layers.transformer import BlockOptions, FeedForward, Residual


class Distances(NamedTuple):
    """The distances i − j between queries and keys, which all layers share."""

    waves: Tensor
    """Sinusoids R of distances, ``[T, D]``; see :func:`distances`."""
    rows: Tensor | None
    """Of each query and key, the row of ``waves``, ``[B or 1, 1, Q, K]``; None if queries and keys
    are in order, and the last query is at the place of the last key."""


class Relation(NamedTuple):
    """How the queries of one stream are related to the keys."""

    distances: Distances
    allowed: Tensor | None
    """Booleans ``[B or 1, 1, Q, K]``, true = may attend; None for all."""
    apart: Tensor | None
    """Booleans ``[B, 1, Q, K]``, true = in another segment; None if all are in one segment."""


def distances(
    queries: Tensor,
    keys: Tensor,
    width: int,
    dtype: torch.dtype,
    bounds: tuple[int, int] | None = None,
) -> Distances:
    """The distances of places.

    Args:
        queries: places of the queries, integers ``[Q]`` or ``[B, Q]``.
        keys: places of the keys, integers ``[K]`` or ``[B, K]``.
        width: width D of the sinusoids, even.
        dtype: their type.
        bounds: the least and the largest distance that may occur; None if places are ``[Q]`` and
            ``[K]``, both count up by one, and their last places are the same.

    Example:
        >>> distances(torch.arange(2), torch.arange(-1, 2), 4, torch.float32).waves.shape
        torch.Size([4, 4])
    """
    if bounds is None:
        most, count, index = len(keys) - 1, len(queries) + len(keys) - 1, None
    else:
        least, most = bounds
        count = most - least + 1
        apart = queries.unsqueeze(-1) - keys.unsqueeze(-2)  # [.., Q, K]
        index = (most - apart).reshape(-1, 1, *apart.shape[-2:])
    angles = rotary_angles(most - torch.arange(count, device=queries.device), width)
    return Distances(torch.cat([angles.sin(), angles.cos()], -1).to(dtype), index)


class StreamHeads(Attentive):
    """The heads of one stream; :func:`heedful.watch` records their weights ``[B, H, Q, K]``.

    Args:
        heads: number of heads H.
        head_dim: width d of a head.
        dropout: share of the weights set to zero in training.
    """

    def __init__(self, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__(None, None, None, dropout)
        self.heads = self.key_heads = heads
        self.head_dim = head_dim

    def forward(self, query: Tensor, memory: Memory, bias: Tensor) -> Tensor:
        """The contexts ``[B, H, Q, d]``.

        Args:
            query: ``[B, H, Q, d]``.
            memory: keys and values ``[B, H, K, d]``.
            bias: what is added to the scaled dot products, ``[B, H, Q, K]``; −∞ for masked keys.
        """
        if self.watched_at_all:
            parts = self.mechanism
            asked = ProjectedQuery.project(parts, query, memory.key.shape[-2], None)
            return self._context(parts, asked, memory, bias, heads=True)
        dropout = self.dropout if self.training else 0.0
        scale = query.shape[-1] ** -0.5
        given = query, memory.key, memory.value, bias
        return masked_attention(*given, dropout_p=dropout, scale=scale, enable_gqa=False)


class TwoStreamAttention(nn.Module):
    """Self-attention whose keys are read by two streams of queries.

    Parameters: projections without bias, ``positions``, ``segment_bias`` (b) ``[H, d]`` and
    ``segments`` (s) ``[2, H, d]``: of keys in the same segment, and in another.

    Args:
        dim: width D, even.
        heads: number of heads H, a divisor of D.
        dropout: share of the weights set to zero in training.
    """

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        (
            self.query_projection,
            self.key_projection,
            self.value_projection,
            self.output_projection,
        ) = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.positions = TransformerXL(self.head_dim, heads, dim)
        self.segment_bias = nn.Parameter(torch.zeros(heads, self.head_dim))
        self.segments = nn.Parameter(torch.randn(2, heads, self.head_dim) * dim**-0.5)
        self.content, self.query = (StreamHeads(heads, self.head_dim, dropout) for _ in range(2))

    def remember(self, states: Tensor) -> Memory:
        """Keys and values ``[B, H, K, d]`` of states ``[B, K, D]``."""
        key, value = self.key_projection(states), self.value_projection(states)
        return Memory(self._split(key), self._split(value))

    def read(
        self, stream: StreamHeads, hidden: Tensor, memory: Memory, relation: Relation
    ) -> Tensor:
        """The result ``[B, Q, D]`` for the states ``hidden [B, Q, D]`` of a stream.

        Args:
            stream: ``content`` or ``query``.
            hidden: what the queries are computed from.
            memory: the result of :meth:`remember`.
            relation: of the queries to the keys.
        """
        query = self._split(self.query_projection(hidden))
        bias = self._bias(query * self.head_dim**-0.5, relation)
        asked = query + self.positions.content_bias.unsqueeze(-2).to(query.dtype)
        context = stream(asked, memory, bias)
        result: Tensor = self.output_projection(context.transpose(-3, -2).flatten(-2))
        return result

    def _split(self, joined: Tensor) -> Tensor:
        """``[B, L, D] -> [B, H, L, d]``."""
        split: Tensor = joined.unflatten(-1, (self.heads, self.head_dim)).transpose(-3, -2)
        return split

    def _bias(self, query: Tensor, relation: Relation) -> Tensor:
        """The terms of position and segment ``[B, H, Q, K]``; −∞ where keys are masked.

        Args:
            query: ``q / √d``, ``[B, H, Q, d]``.
            relation: of the queries to the keys.
        """
        scale, kind = self.head_dim**-0.5, query.dtype
        places = query + (self.positions.position_bias * scale).unsqueeze(-2).to(kind)
        waves, index = relation.distances
        by_distance = places @ (self.positions.projection @ waves.mT).to(kind)  # [B, H, Q, T]
        bias = _shifted(by_distance) if index is None else _chosen(by_distance, index)
        if relation.apart is not None:
            asked = query + (self.segment_bias * scale).unsqueeze(-2).to(kind)
            same, other = (asked @ self.segments.permute(1, 2, 0).to(kind)).split(1, -1)
            bias = bias + torch.where(relation.apart, other, same)
        if relation.allowed is not None:
            bias = bias.masked_fill(~relation.allowed, float("-inf"))
        return bias


def _shifted(by_distance: Tensor) -> Tensor:
    """``[B, H, Q, T] -> [B, H, Q, K]`` for queries and keys in order, where T = Q + K − 1.

    Key j of query i is at column j − i + Q − 1: rows that are one shorter begin where they should.
    """
    queries, count = by_distance.shape[-2:]
    if queries == 1:
        return by_distance
    flat = by_distance.flatten(-2)[..., queries - 1 : queries * count - 1]
    rows: Tensor = flat.unflatten(-1, (queries, count - 1))
    return rows[..., : count - queries + 1]


def _chosen(by_distance: Tensor, index: Tensor) -> Tensor:
    """``[B, H, Q, T] -> [B, H, Q, K]`` by an index ``[B or 1, 1, Q, K]``."""
    return by_distance.gather(-1, index.expand(*by_distance.shape[:2], *index.shape[-2:]))


class TwoStreamLayer(nn.Module):
    """Two-stream attention, then the feed-forward network, each normalized after the sum.

    Args:
        options: sizes and options.
        heads: number of heads.
        attention_dropout: share of the weights set to zero in training.
    """

    def __init__(self, options: BlockOptions, heads: int, attention_dropout: float) -> None:
        super().__init__()
        self.attention = TwoStreamAttention(options.dim, heads, attention_dropout)
        self.feed_forward = FeedForward(options)
        self.around_attention = Residual(options)
        self.around_feed_forward = Residual(options)

    def forward(
        self,
        content: Tensor,
        content_relation: Relation | None,
        query: Tensor | None = None,
        query_relation: Relation | None = None,
        earlier: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The states of the content stream ``[B, L, D]`` and of the query stream ``[B, N, D]``.

        Args:
            content: states of the content stream.
            content_relation: of the content stream to the keys; None to leave that stream as it is,
                if nothing reads its new states.
            query: states of the query stream; None without one.
            query_relation: of the query stream to the keys.
            earlier: states of earlier text ``[B, M, D]``, which are keys, too.
        """
        attention = self.attention
        memory = attention.remember(
            content if earlier is None else torch.cat([earlier, content], 1)
        )
        after = content
        if content_relation is not None:
            after = self._block(attention.content, content, memory, content_relation)
        if query is None or query_relation is None:
            return after, None
        return after, self._block(attention.query, query, memory, query_relation)

    def _block(
        self, stream: StreamHeads, hidden: Tensor, memory: Memory, relation: Relation
    ) -> Tensor:
        hidden = self.around_attention(
            hidden, lambda x: self.attention.read(stream, x, memory, relation)
        )
        result: Tensor = self.around_feed_forward(hidden, self.feed_forward)
        return result
