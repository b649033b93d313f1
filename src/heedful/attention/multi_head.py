"""Multi-head attention: several attentions in parallel, each over its own projections.

Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2. Fewer key heads than
query heads: Shazeer 2019, "Fast Transformer Decoding" (multi-query), and Ainslie et al. 2023, "GQA"
(grouped).
Shapes: B batch, H heads, G key and value heads, Q queries, K keys, D width of a head.
"""

from typing import Any, Literal, Self, get_args

from torch import Tensor, nn

from heedful.attention.checking import (
    check_inputs,
    check_leading,
    check_part,
    refuse_positional,
)
from heedful.attention.functional import position_bias
from heedful.attention.heads import HeadMixing, OutputGate, QueryKeyNorm
from heedful.attention.masks import Mask
from heedful.attention.masks.use import mask_for_heads
from heedful.attention.mechanism import Mechanism, ProjectedQuery
from heedful.attention.modules import Attentive, Memory
from heedful.attention.normalizers import Normalizer
from heedful.attention.places import First
from heedful.attention.positions.base import RelativePositions
from heedful.attention.positions.rotary import Rotary
from heedful.attention.scores import Score
from heedful.attention.step_memory import StepMemory
from heedful.attention.torch_module import converted, exported

Aggregate = Literal["projection", "concatenation", "mean"]


class MultiHeadAttention(Attentive):
    """Heads ``c_j = Attn(W_q^j q, W_k^j k, W_v^j v)``, joined to one vector.

    Args:
        dim: width of the queries and, with ``aggregate="projection"``, of the result.
        heads: number of heads.
        key_dim: width of the keys; default ``dim``.
        value_dim: width of the values; default ``key_dim``.
        head_dim: width of a head; default ``dim / heads``.
        key_heads: number of key and value heads, each shared by ``heads / key_heads`` query heads;
            default ``heads``; 1 is multi-query attention.
        score: compares vectors of width ``head_dim``; default: scaled dot product.
        normalize: maps scores to weights; default: softmax.
        positions: rotates queries and keys, or changes scores and values; default: none.
        mask: a mask that is combined with the one of each call; default: none.
        aggregate: how the heads' contexts are combined: concatenated and multiplied by a matrix
            ("projection"), only concatenated (width ``heads · head_dim``), or averaged (width
            ``head_dim``).
        query_key_norm: normalizes queries and keys before positions and score; default: none.
        mixing: combines the scores or weights of the heads; default: none.
        gate: scales the heads' contexts; default: none.
        shared_key_value: whether keys and values share one projection (W_k ≡ W_v).
        dropout: share of the weights set to zero in training, in [0, 1).
        bias: whether the projections have a bias.
        output_bias: whether that of the result has one; default: ``bias``.

    Raises:
        TypeError: a part has the wrong class.
        ValueError: ``heads`` or ``head_dim`` is below 1, ``dim`` is not a multiple of ``heads`` and
            ``head_dim`` is missing, ``heads`` is not a multiple of ``key_heads``, keys and values
            have different widths but share a projection, ``aggregate`` is unknown, dropout is not
            in [0, 1), or a part is for other heads. At the call: shapes do not match, also those of
            parts whose sizes are not known before, or heads that are mixed have different masks.

    Example:
        >>> import torch
        >>> MultiHeadAttention(8, heads=2)(torch.zeros(1, 3, 8), torch.zeros(1, 5, 8)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        head_dim: int | None = None,
        key_heads: int | None = None,
        score: Score | None = None,
        normalize: Normalizer | None = None,
        positions: RelativePositions | None = None,
        query_key_norm: QueryKeyNorm | None = None,
        mixing: HeadMixing | None = None,
        gate: OutputGate | None = None,
        mask: Mask | None = None,
        aggregate: Aggregate = "projection",
        shared_key_value: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        output_bias: bool | None = None,
    ) -> None:
        super().__init__(score, normalize, positions, dropout, mixing, mask)
        key_heads = heads if key_heads is None else key_heads
        _check_sizes(dim, heads, key_heads, head_dim, aggregate)
        key_dim = dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        if shared_key_value and key_dim != value_dim:
            raise ValueError(
                f"shared_key_value requires equal widths: keys have {key_dim}, values {value_dim}"
            )
        self.query_dim, self.heads, self.key_heads = dim, heads, key_heads
        self.head_dim = dim // heads if head_dim is None else head_dim
        self.aggregate = aggregate
        self.query_key_norm, self.gate = query_key_norm, gate
        self._check_parts(dim)
        self.query_projection = nn.Linear(dim, heads * self.head_dim, bias=bias)
        self.key_projection = nn.Linear(key_dim, key_heads * self.head_dim, bias=bias)
        self.value_projection = (
            None if shared_key_value else nn.Linear(value_dim, key_heads * self.head_dim, bias=bias)
        )
        last = bias if output_bias is None else output_bias
        self.output_projection = (
            nn.Linear(heads * self.head_dim, dim, bias=last) if aggregate == "projection" else None
        )
        self._reset()

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention, **parts: Any) -> Self:
        """A module with copies of the weights of ``nn.MultiheadAttention``, and equal results.

        Device, type, training mode, dropout and frozen parameters are those of ``module``. Inputs
        are ``[B, L, dim]`` here, whatever its ``batch_first``. For masks see
        :func:`.masks.from_torch`; ``add_zero_attn`` is the normalizer ``SoftmaxOffByOne``.

        Args:
            module: PyTorch's module.
            parts: parts that replace the scaled dot product, the softmax, and so on; arguments of
                this class.

        Raises:
            TypeError: ``module`` has another class.
            ValueError: ``module`` has ``add_bias_kv``, which cannot be expressed.

        Example:
            >>> MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2)).heads
            2
        """
        return converted(cls, module, parts)

    def to_torch(self, *, batch_first: bool = True) -> nn.MultiheadAttention:
        """``nn.MultiheadAttention`` with copies of these weights, and equal results.

        Args:
            batch_first: whether its inputs are ``[B, L, dim]``, as here, or ``[L, B, dim]``.

        Raises:
            ValueError: it cannot compute the same; the message has the reasons.

        Example:
            >>> MultiHeadAttention(8, heads=2).to_torch().num_heads
            2
        """
        return exported(self, batch_first=batch_first)

    def _check_parts(self, dim: int) -> None:
        """Raise TypeError or ValueError unless the parts are for these heads."""
        for name, part in (("positions", self.positions), ("normalize", self.normalize)):
            heads = getattr(part, "heads", 1)
            if heads not in (1, self.heads):
                raise ValueError(f"{name} is for {heads} heads, not {self.heads}")
        for name in ("query_dim", "key_dim"):
            width = getattr(self.score, name, self.head_dim)
            if width != self.head_dim:
                raise ValueError(f"score has {name} {width}, but a head is {self.head_dim} wide")
        if isinstance(self.positions, Rotary) and self.positions.dim > self.head_dim:
            raise ValueError(
                f"positions rotate {self.positions.dim} components of a head, which has only "
                f"{self.head_dim}"
            )
        if self.query_key_norm is not None:
            check_part("query_key_norm", self.query_key_norm, QueryKeyNorm)
            self.query_key_norm.check(self.score, self.head_dim)
        if self.mixing is not None and self.mixing.heads != self.heads:
            raise ValueError(f"mixing is for {self.mixing.heads} heads, not {self.heads}")
        if self.gate is not None:
            check_part("gate", self.gate, OutputGate)
            self.gate.check(dim, *self._context_sizes())

    def _context_sizes(self) -> tuple[int, int]:
        """The number of the heads' contexts, and their width."""
        return self.heads, self.head_dim

    @property
    def projects_only(self) -> bool:
        """Whether nothing but projections is between inputs, heads and result."""
        return (
            type(self) is MultiHeadAttention and self.query_key_norm is None and self.gate is None
        )

    def _reset(self) -> None:
        for part in self.children():
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    def _split(self, joined: Tensor) -> Tensor:
        """``[B, L, H·D] -> [B, H, L, D]``."""
        heads = joined.shape[-1] // self.head_dim
        return joined.view(*joined.shape[:-1], heads, self.head_dim).transpose(-3, -2)

    def remember(self, key: Tensor, value: Tensor | None = None, first: First = 0) -> Memory:
        """Project ``key [B, K, key_dim]`` and ``value`` (default: the keys) once.

        Args:
            key: the keys.
            value: the values.
            first: position of the first key, if earlier keys are in another memory (a cache); or of
                each entry, ``[B]``, or of all keys, ``[B, K]``.

        Returns:
            Keys and values ``[B, G, K, D]``.
        """
        check_inputs(key=key, value=key if value is None else value)
        projected = self._split(self.key_projection(key))
        normed = projected if self.query_key_norm is None else self.query_key_norm.key(projected)
        keys = self.mechanism.remember(normed, first)
        if self.value_projection is not None:
            return Memory(keys, self._split(self.value_projection(key if value is None else value)))
        if value is None or value is key:
            return Memory(keys, projected)
        return Memory(keys, self._split(self.key_projection(value)))

    def read(
        self,
        query: Tensor,
        memory: Memory | StepMemory,
        mask: Mask | Tensor | None = None,
        first: First | None = None,
    ) -> Tensor:
        """The result ``[B, Q, dim]`` of ``query [B, Q, dim]`` over the memory.

        Args:
            query: the queries.
            memory: the result of :meth:`remember`; or a :class:`StepMemory`, for one query per
                row, which attends to all of it.
            mask: a mask, or a tensor ``[Q, K]``, ``[B, Q, K]`` (for all heads) or ``[B, H, Q, K]``.
            first: position of the first query; see :func:`heedful.attention.attend`.
        """
        check_inputs(query=query)
        queries = self._split(self.query_projection(query))
        if self.query_key_norm is not None:
            queries = self.query_key_norm.query(queries)
        parts = self.mechanism
        for one in (self.mask, mask):
            self._check_mask(one)
        if isinstance(memory, StepMemory):
            scale = self._step_scale(parts)
            if scale is not None:
                keys = memory.steps.length
                projected_query = ProjectedQuery.project(parts, queries, keys, first)
                bias = position_bias(parts, projected_query, keys)
                bias = None if bias is None else bias.squeeze(-2)
                read = memory.read(projected_query.projected.squeeze(-2), scale, bias=bias)
                return self._joined(read.unsqueeze(-2), query)
            key, value, mask = memory.gather()
            memory = Memory(key, value)
        check_leading(query=query.shape[:-2], memory=memory.key.shape[:-3])
        projected_query = ProjectedQuery.project(parts, queries, memory.key.shape[-2], first)
        mask = mask_for_heads(mask, queries.dim() - 1)
        context = self._context(
            parts, projected_query, self._for_all_heads(memory), mask, heads=True
        )
        return self._joined(context, query)

    def _check_mask(self, mask: Mask | Tensor | None) -> None:
        if self.mixing is None or mask is None:
            return
        for one in (mask,) if isinstance(mask, Tensor) else mask.tensors:
            if one.dim() > 3 and one.shape[-3] > 1:
                raise ValueError(
                    f"mask {list(one.shape)} has one matrix for each head, but heads are mixed: a "
                    "masked key of one head would get weights of another; use [B, Q, K]"
                )

    def _step_scale(self, parts: Mechanism) -> float | None:
        """The scale of a step's dot products, if the cache can be read in place; else None."""
        if self.watched or self.watched_in_part or (self.training and self.dropout):
            return None
        if self.mask is not None:
            return None
        return parts.fused_scale(self.head_dim)

    def _joined(self, context: Tensor, query: Tensor) -> Tensor:
        """Combine the heads' contexts ``[B, H, Q, E]`` to one vector for each query.

        The gate needs the input of the queries, ``query [B, Q, dim]``.
        """
        if self.gate is not None:
            context = self.gate(query, context)
        if self.aggregate == "mean":
            return context.mean(-3)
        joined = context.transpose(-3, -2).flatten(-2)  # [B, Q, H·D]
        if self.output_projection is None:
            return joined
        result: Tensor = self.output_projection(joined)
        return result

    def _for_all_heads(self, memory: Memory) -> Memory:
        """Repeat each key head for its query heads, if weights are needed."""
        repeats = self.heads // self.key_heads
        if repeats == 1 or not (self.watched or self.watched_in_part):
            return memory
        return Memory(*(part.repeat_interleave(repeats, dim=-3) for part in memory))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        *others: object,
        mask: Mask | Tensor | None = None,
        first: First | None = None,
    ) -> Tensor:
        """``[B, Q, dim]`` for ``query [B, Q, dim]``, ``key [B, K, key_dim]`` and its values.

        Returns a tensor, not a pair as ``nn.MultiheadAttention`` does. For the weights, see
        :func:`heedful.attention.watch`. ``out, _ = layer(x, x)`` would unpack a batch of two.

        Args:
            query: the queries.
            key: the keys.
            value: the values; default: the keys.
            others: must be empty: pass the mask as a keyword.
            mask: a mask, or a tensor as in :meth:`read`; true = may attend.
            first: position of the first query; see :func:`heedful.attention.attend`.
        """
        refuse_positional(self, others)
        check_inputs(query=query, key=key, value=key if value is None else value)
        return self.read(query, self.remember(key, value), mask, first)


def _check_sizes(
    dim: int, heads: int, key_heads: int, head_dim: int | None, aggregate: str
) -> None:
    if heads < 1 or key_heads < 1:
        raise ValueError(f"heads must be at least 1, not heads={heads}, key_heads={key_heads}")
    if heads % key_heads:
        raise ValueError(f"heads {heads} is not a multiple of key_heads {key_heads}")
    if head_dim is not None and head_dim < 1:
        raise ValueError(f"head_dim must be at least 1, not {head_dim}")
    if head_dim is None and dim % heads:
        raise ValueError(f"dim {dim} is not a multiple of heads {heads}; set head_dim")
    if aggregate not in get_args(Aggregate):
        raise ValueError(f"aggregate must be one of {get_args(Aggregate)}, not '{aggregate}'")
