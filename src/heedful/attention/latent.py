"""Multi-head latent attention: keys and values of all heads from one vector of each position.

    c_t = RMSNorm(W_DKV h_t),   k_t^j = [W_UK^j c_t; R_t W_KR h_t],   v_t^j = W_UV^j c_t
    q_t^j = [W_Q^j h_t; R_t W_QR^j h_t],   head_j = softmax(q^j K^jᵀ / √(d + d_R)) V^j

DeepSeek-AI 2024, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language
Model", section 2.1, equations 9 to 19; the norm is that of section 3.1.2. R_t are rotary positions.
Their keys are shared by all heads, so that a cache holds c_t and one rotated key: the width
``latent_size + rotary_size`` for each position, whatever the number of heads.

W_UK need not be applied to keys: qᵀ W_UK c = (W_UKᵀ q)ᵀ c. With few queries, a step of decoding,
this *absorbed* form computes less (section 2.1.2).
Shapes: B batch, H heads, Q queries, K keys, d width of a head, d_R of its rotated part, C latent.
"""

import torch
from torch import Tensor, nn

from heedful.attention.checking import check_inputs, check_leading
from heedful.attention.heads import OutputGate
from heedful.attention.masks import Mask
from heedful.attention.masks.use import mask_for_heads
from heedful.attention.mechanism import ProjectedQuery
from heedful.attention.modules import Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.normalizers import Normalizer
from heedful.attention.places import First, places
from heedful.attention.positions.rotary import Rotary
from heedful.attention.step_memory import StepMemory


class LatentAttention(MultiHeadAttention):
    """Attention whose keys and values are projections of one latent vector of each position.

    :meth:`remember` returns the latents and rotated keys ``[B, 1, K, C + d_R]``, and no values.

    Args:
        dim: width of queries, keys and result.
        heads: number of heads.
        latent_size: width C of the latent vectors.
        head_dim: width d of a head's values, and of its queries and keys without the rotated part;
            default ``dim / heads``.
        rotary: rotates the first ``rotary.dim`` = d_R components of additional queries and keys;
            None for attention without positions.
        query_latent_size: width of a latent vector from which queries are projected; None for one
            projection.
        key_dim: width of the inputs of keys; default ``dim``.
        normalize: maps scores to weights; default: softmax.
        gate: scales the heads' contexts; default: none.
        mask: a mask that is combined with the one of each call; default: none.
        dropout: share of the weights set to zero in training, in [0, 1).
        bias: whether the projections of inputs to latents, queries and result have a bias.

    Raises:
        TypeError: a part has the wrong class.
        ValueError: a size is below 1, ``dim`` is not a multiple of ``heads`` and ``head_dim`` is
            missing, or dropout is not in [0, 1). At the call: shapes do not match, or values are
            given that are not the keys.

    Source: DeepSeek-AI 2024, section 2.1.

    Example:
        >>> attention = LatentAttention(8, heads=2, latent_size=3, rotary=Rotary(2))
        >>> attention.remember(torch.zeros(1, 5, 8)).key.shape
        torch.Size([1, 1, 5, 5])
        >>> attention(torch.zeros(1, 4, 8), torch.zeros(1, 5, 8)).shape
        torch.Size([1, 4, 8])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        latent_size: int,
        *,
        head_dim: int | None = None,
        rotary: Rotary | None = None,
        query_latent_size: int | None = None,
        key_dim: int | None = None,
        normalize: Normalizer | None = None,
        gate: OutputGate | None = None,
        mask: Mask | None = None,
        dropout: float = 0.0,
        bias: bool = False,
    ) -> None:
        _check_sizes(dim, heads, latent_size, query_latent_size, head_dim)
        self.width = dim // heads if head_dim is None else head_dim
        self.latent_size, self.rotary_size = latent_size, 0 if rotary is None else rotary.dim
        super().__init__(
            dim,
            heads,
            key_dim=key_dim,
            head_dim=self.width + self.rotary_size,
            key_heads=1,
            normalize=normalize,
            gate=gate,
            mask=mask,
            shared_key_value=True,
            dropout=dropout,
            bias=bias,
        )
        self.rotary = rotary
        self.query_compression, of_query = None, dim
        if query_latent_size is not None:
            self.query_compression = nn.Sequential(
                nn.Linear(dim, query_latent_size, bias=bias), nn.RMSNorm(query_latent_size, 1e-6)
            )
            of_query = query_latent_size
            self.query_projection = nn.Linear(of_query, heads * self.head_dim, bias=False)
        stored = latent_size + self.rotary_size
        self.key_projection = nn.Linear(dim if key_dim is None else key_dim, stored, bias=bias)
        self.latent_norm = nn.RMSNorm(latent_size, 1e-6)
        self.key_expansion = nn.Linear(latent_size, heads * self.width, bias=False)
        self.value_expansion = nn.Linear(latent_size, heads * self.width, bias=False)
        self.output_projection = nn.Linear(heads * self.width, dim, bias=bias)
        self._reset()

    def _context_sizes(self) -> tuple[int, int]:
        return self.heads, self.width

    def remember(self, key: Tensor, value: Tensor | None = None, first: First = 0) -> Memory:
        """Compress ``key [B, K, key_dim]`` once.

        Args:
            key: the keys, which are the values, too.
            value: None, or the keys.
            first: position of the first key; or of each entry, ``[B]``, or of all keys, ``[B, K]``.

        Returns:
            Latents and rotated keys ``[B, 1, K, C + d_R]``, and values of width 0.

        Raises:
            ValueError: there are other values.
        """
        check_inputs(key=key)
        if value is not None and value is not key:
            raise ValueError("latent attention has one latent for keys and values: leave out value")
        joined = self.key_projection(key).unsqueeze(-3)
        stored = self.latent_norm(joined[..., : self.latent_size])
        if self.rotary is not None:
            turned = self._turned(joined[..., self.latent_size :], first)
            stored = torch.cat([stored, turned], -1)
        return Memory(stored, stored[..., :0])

    def _turned(self, vectors: Tensor, first: First) -> Tensor:
        """Rotated ``vectors [B, .., L, d_R]`` at positions ``first``, ``first + 1``, …"""
        assert self.rotary is not None
        rows = torch.arange(vectors.shape[-2], device=vectors.device)
        return self.rotary.turn(vectors, places(first, rows, vectors.dim() - 2))

    def read(
        self,
        query: Tensor,
        memory: Memory | StepMemory,
        mask: Mask | Tensor | None = None,
        first: First | None = None,
    ) -> Tensor:
        """The result ``[B, Q, dim]`` of ``query [B, Q, dim]`` over the memory.

        Arguments and errors as in :meth:`MultiHeadAttention.read`.
        """
        check_inputs(query=query)
        if isinstance(memory, StepMemory):
            first = memory.steps.length - query.shape[-2] if first is None else first
            scale = self._step_scale(self.mechanism)
            if scale is not None:
                return self._step(query, memory, first, scale)
            key, value, mask = memory.gather()
            memory = Memory(key, value)
        check_leading(query=query.shape[:-2], memory=memory.key.shape[:-3])
        stored, keys = memory.key, memory.key.shape[-2]
        queries = self._queries(query, keys - query.shape[-2] if first is None else first)
        absorbed = self.absorbs(query.shape[-2], keys)
        form = self._absorbed(queries, stored) if absorbed else self._expanded(queries, stored)
        vectors, memory = form
        projected_query = ProjectedQuery.project(self.mechanism, vectors, keys, first)
        mask = mask_for_heads(mask, queries.dim() - 1)
        context = self._context(
            self.mechanism, projected_query, self._for_all_heads(memory), mask, heads=True
        )
        if absorbed:
            context = self._values_of(context)
        return self._joined(context, query)

    def _queries(self, query: Tensor, first: First) -> Tensor:
        """The heads' queries ``[B, H, Q, d + d_R]``, the last components of which are rotated."""
        given = query if self.query_compression is None else self.query_compression(query)
        queries = self._split(self.query_projection(given))
        if self.rotary is None:
            return queries
        turned = self._turned(queries[..., self.width :], first)
        return torch.cat([queries[..., : self.width], turned], -1)

    def _step(self, query: Tensor, memory: StepMemory, first: First, scale: float) -> Tensor:
        """The result ``[N, 1, dim]`` of one query per row; the latents are read in place."""
        vectors = self._over_latents(self._queries(query, first))
        read = memory.read(vectors.squeeze(-2), scale, shared=self.latent_size)
        return self._joined(self._values_of(read.unsqueeze(-2)), query)

    def absorbs(self, queries: int, keys: int) -> bool:
        """Whether the absorbed form needs fewer multiplications for Q queries and K keys."""
        more = 2 * queries * keys * (self.latent_size - self.width)
        return more < (keys - queries) * 2 * self.latent_size * self.width

    def _over_latents(self, queries: Tensor) -> Tensor:
        """Queries ``[B, H, Q, C + d_R]`` for the latents: the key expansion is applied to them."""
        weight = self.key_expansion.weight.view(self.heads, self.width, -1)
        own = torch.einsum("...hqd,hdc->...hqc", queries[..., : self.width], weight)
        return torch.cat([own, queries[..., self.width :]], -1)

    def _values_of(self, context: Tensor) -> Tensor:
        """Mean latents ``[B, H, Q, C]``, expanded to values ``[B, H, Q, d]``."""
        weight = self.value_expansion.weight.view(self.heads, self.width, -1)
        return torch.einsum("...hqc,hdc->...hqd", context, weight)

    def _absorbed(self, queries: Tensor, stored: Tensor) -> tuple[Tensor, Memory]:
        """Queries ``[B, H, Q, C + d_R]``, for the latents as keys and values of one head."""
        vectors = self._over_latents(queries)
        # The score divides by the root of this width instead of that of the expanded form.
        vectors = vectors * (vectors.shape[-1] / queries.shape[-1]) ** 0.5
        return vectors, Memory(stored, stored[..., : self.latent_size])

    def _expanded(self, queries: Tensor, stored: Tensor) -> tuple[Tensor, Memory]:
        """The queries, and keys ``[B, H, K, d + d_R]`` and values ``[B, H, K, d]``."""
        latents, rotated = stored.squeeze(-3).split([self.latent_size, self.rotary_size], -1)
        key, value = (
            expansion(latents).unflatten(-1, (self.heads, self.width)).transpose(-2, -3)
            for expansion in (self.key_expansion, self.value_expansion)
        )
        rotated = rotated.unsqueeze(-3).expand(*key.shape[:-1], self.rotary_size)
        return queries, Memory(torch.cat([key, rotated], -1), value)

    def _for_all_heads(self, memory: Memory) -> Memory:
        one = memory.key.shape[-3] == 1
        if not one or not (self.watched or self.watched_in_part):
            return memory
        return Memory(*(part.repeat_interleave(self.heads, dim=-3) for part in memory))


def _check_sizes(
    dim: int, heads: int, latent_size: int, query_latent_size: int | None, head_dim: int | None
) -> None:
    if min(heads, latent_size, 1 if query_latent_size is None else query_latent_size) < 1:
        raise ValueError(
            f"heads {heads}, latent_size {latent_size} and query_latent_size {query_latent_size} "
            "must be at least 1"
        )
    if head_dim is None and dim % heads:
        raise ValueError(f"dim {dim} is not a multiple of heads {heads}; set head_dim")
