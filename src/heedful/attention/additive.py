"""Additive attention with masks, for the tiled kernel.

The mask is evaluated for some rows at a time and never as a whole.
"""

import copy

import torch
from torch import Tensor

from heedful.attention.masks import Grid, Mask, split_mask
from heedful.basics.addresses import is_transformed
from heedful.basics.shapes import leading_sizes
from heedful.kernels.additive import additive_attention
from heedful.kernels.additive_selection import plain_is_faster


def additive_context(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    v: Tensor,
    mask: Mask | Tensor | None,
    grid: Grid,
    *,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> Tensor | None:
    """The context ``[.., Q, E]``, tile by tile; None if the plain path is as good.

    Args:
        query: projected queries ``[.., Q, D]``.
        key: projected keys ``[.., K, D]``.
        value: ``[.., K, E]``.
        v: ``[D]``.
        mask: which query may attend to which key; boolean only.
        grid: the queries and keys that the mask is evaluated on.
        scale: factor on the scores, before the softmax.
        dropout: share of the weights set to zero.
    """
    if plain_is_faster(query, key, v, value):
        return None
    leading = leading_sizes(query, key, value)
    given = query, key, value, v
    eager = not (torch.compiler.is_compiling() or any(map(is_transformed, given)))
    if eager and torch.is_grad_enabled() and any(part.requires_grad for part in given):
        # The backward pass evaluates the mask again, so it needs a copy of the mask's tensors.
        mask = copy.deepcopy(mask)

    def rows_of(rows: slice | None) -> Tensor | None:
        part = grid if rows is None else grid.part(rows)
        return None if mask is None else dense_entries(mask, part, leading)

    return additive_attention(query, key, value, v, rows_of, scale=scale, dropout=dropout)


def dense_entries(
    mask: Mask | Tensor | None, grid: Grid, leading: tuple[int, ...]
) -> Tensor | None:
    """Booleans ``[n or 1, q or 1, K or 1]`` for the grid."""
    allowed = split_mask(mask, grid)[0]
    if allowed is None:
        return None
    if allowed.dim() > 2 and allowed.shape[:-2].numel() != 1:
        allowed = allowed.expand(*leading, *allowed.shape[-2:])
    if allowed.dim() < 2:
        allowed = allowed.view(1, -1)
    return allowed.reshape(allowed.shape[:-2].numel(), *allowed.shape[-2:])
