"""Causal attention to the blocks that each query selects, computed without the other blocks."""

import torch
from torch import Tensor

from heedful.attention.masks import Causal, Mask, TopBlocks
from heedful.attention.masks.algebra import Combined
from heedful.attention.masks.top_blocks import selected
from heedful.attention.mechanism import Mechanism, ProjectedQuery
from heedful.basics.addresses import is_plain
from heedful.kernels.block_sparse import block_sparse_attention

_SAVES = 2  # times as many keys as a query selects
_LONG = 1024  # with fewer keys, the kernel with a mask matrix is faster


def block_sparse_context(
    mechanism: Mechanism,
    projected_query: ProjectedQuery,
    key: Tensor,
    value: Tensor,
    mask: Mask,
    dropout: float,
) -> Tensor | None:
    """The context ``[.., Q, dv]``; None unless it is faster than with a mask matrix.

    Source: Lu et al. 2025, "MoBA: Mixture of Block Attention for Long-Context LLMs", section 2.3.
    """
    query, first, positions = projected_query.projected, projected_query.first, mechanism.positions
    blocks, scale = _top_blocks(mask), mechanism.fused_scale(query.shape[-1])
    if blocks is None or scale is None or dropout or torch.compiler.is_compiling():
        return None
    if (positions is not None and positions.biases) or isinstance(first, Tensor):
        return None
    length = key.shape[-2]
    if length < max(_LONG, _SAVES * blocks.size * blocks.count) or query.shape[-2] == 1:
        return None
    if not all(map(is_plain, (query, key, value))) or not _flat(query, key, value):
        return None
    with torch.no_grad():
        best, there, _ = selected(query, key, blocks.size, blocks.count, first=first)
    flat = (part.reshape(-1, *part.shape[-2:]) for part in (query, key, value, best, there))
    start = length - query.shape[-2] if first is None else first
    context = block_sparse_attention(*flat, size=blocks.size, scale=scale, first=start)
    return context.view(*query.shape[:-1], value.shape[-1])


def _top_blocks(mask: Mask) -> TopBlocks | None:
    """The selected blocks, if the mask is exactly ``causal() & TopBlocks(…)``."""
    if not isinstance(mask, Combined) or mask.sign != "&":
        return None
    parts = (mask.one, mask.other)
    blocks = next((part for part in parts if isinstance(part, TopBlocks)), None)
    causal = any(type(part) is Causal for part in parts)
    return blocks if causal else None


def _flat(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether leading dimensions can be flattened to heads: only those of groups differ."""
    same = key.shape[:-2] == value.shape[:-2] and query.shape[:-3] == key.shape[:-3]
    if not same or query.dim() != key.dim():
        return False
    return key.dim() < 3 or (key.shape[-3] > 0 and query.shape[-3] % key.shape[-3] == 0)
