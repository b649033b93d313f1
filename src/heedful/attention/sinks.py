"""A sink as one more key, for kernels that compute a softmax of dot products.

The key's score is s and its value 0. Queries and keys get one more component, whose product is
s / scale for the sink and 0 for all other keys. Masks then stay boolean and shared by all heads,
and kernels compute the gradient of s as that of any query.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.masks import Grid, Mask
from heedful.attention.mechanism import FusedForm


class SinkMask(Mask):
    """A mask for one more key, the last, which all queries may attend to."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask

    def allows(self, grid: Grid) -> Tensor:
        return _padded(self.mask.allows(_without_sink(grid)), grid.keys - 1)


def _without_sink(grid: Grid) -> Grid:
    shape = (*grid.leading, grid.queries, grid.keys - 1)
    return Grid(shape, grid.device, rows=grid.rows, first=grid.first)


def _padded(mask: Tensor, keys: int) -> Tensor:
    """The mask ``[.., K + 1]``: booleans or numbers to add."""
    mask = mask.expand(*mask.shape[:-1], keys) if mask.dim() else mask.expand(keys)
    more = mask.new_zeros(1) if mask.is_floating_point() else mask.new_ones(1)
    return torch.cat([mask, more.expand(*mask.shape[:-1], 1)], -1)


def per_head(sink: Tensor | float, query: Tensor) -> Tensor:
    """The sink's score for each query, broadcastable to ``[.., H, Q, 1]``."""
    if not isinstance(sink, Tensor):
        return query.new_full((1,), sink)
    if sink.numel() == 1:
        return sink.view(1)
    if query.dim() < 3 or query.shape[-3] != sink.numel():
        raise ValueError(
            f"query {list(query.shape)}: expected [.., {sink.numel()}, Q, D], because there are "
            f"sinks for {sink.numel()} heads"
        )
    return sink.view(-1, 1, 1)


def with_sink(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    grid: Grid | None,
    form: FusedForm,
) -> tuple[Tensor, Tensor, Tensor, Mask | Tensor | None, Grid | None]:
    """Queries, keys, values, mask and grid with one more key.

    Args:
        query: ``[.., H, Q, D]``.
        key: ``[.., G, K, D]``.
        value: ``[.., G, K, E]``; the result has one more component, so that kernels for equal
            widths can be used.
        mask: as for :func:`~heedful.attention.dot.dot_context`.
        grid: the queries and keys that the mask is evaluated on.
        form: the scale and the sink.

    Returns:
        Tensors ``[.., H, Q, D + 1]``, ``[.., G, K + 1, D + 1]`` and ``[.., G, K + 1, E + 1]``.
    """
    assert form.sink is not None
    more = (per_head(form.sink, query) / form.scale).to(query.dtype)
    query = torch.cat([query, more.expand(*query.shape[:-1], 1)], -1)
    last = F.pad(key.new_ones(1), (key.shape[-1], 0)).expand(*key.shape[:-2], 1, -1)
    keys = key.shape[-2]
    key = torch.cat([F.pad(key, (0, 1)), last.to(key.dtype)], -2)
    value = F.pad(value, (0, 1, 0, 1))
    if mask is None:
        return query, key, value, None, None
    mask = SinkMask(mask) if isinstance(mask, Mask) else _padded(mask, keys)
    if grid is not None:
        first = grid.keys - grid.queries if grid.first is None else grid.first
        shape = (*grid.leading, grid.queries, grid.keys + 1)
        grid = Grid(shape, grid.device, rows=grid.rows, first=first)
    return query, key, value, mask, grid
