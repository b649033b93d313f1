"""Block masks for FlexAttention, which skips the blocks that allow nothing."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from heedful.attention.masks.algebra import Grid, Mask
from heedful.attention.places import First


class _Point(Grid):
    """A grid of one query and one key of one entry, given as scalar tensors."""

    def __init__(
        self, shape: Sequence[int], first: First | None, batch: Tensor, head: Tensor, *at: Tensor
    ) -> None:
        self.leading = tuple(shape[:-2])
        self.queries, self.keys = shape[-2], shape[-1]
        self.row, self.column = at
        self.device = self.row.device
        self.first = first
        self.entry = (batch, head)

    @property
    def query(self) -> Tensor:
        first = self.keys - self.queries if self.first is None else self.first
        if isinstance(first, Tensor):
            start = first[self.entry[0] * (len(first) > 1)]
            return self.row + start if first.dim() == 1 else start[self.row]
        return self.row + first

    @property
    def key(self) -> Tensor:
        return self.column

    def per_entry(self, numbers: Tensor) -> Tensor:
        return self._at(numbers)

    def per_query(self, numbers: Tensor) -> Tensor:
        return self._at(numbers, self.row)

    def per_key(self, numbers: Tensor) -> Tensor:
        return self._at(numbers, self.column)

    def per_pair(self, pairs: Tensor) -> Tensor:
        pairs = pairs.reshape(*[1] * max(0, 4 - pairs.dim()), *pairs.shape)
        whole = (*self.entry, self.row, self.column)
        return pairs[tuple(i * (n > 1) for i, n in zip(whole, pairs.shape, strict=True))]

    def _at(self, numbers: Tensor, *last: Any) -> Tensor:
        entries = numbers.dim() - len(last)
        sizes = numbers.shape[:entries]
        return numbers[(*(i * (n > 1) for i, n in zip(self.entry, sizes, strict=False)), *last)]


def flex_mask(
    mask: Mask,
    shape: Sequence[int],
    device: torch.device | str = "cpu",
    *,
    first: First | None = None,
) -> BlockMask:
    """A mask for ``torch.nn.attention.flex_attention.flex_attention``.

    Args:
        mask: any mask of this library.
        shape: of the scores, ``[B, H, Q, K]``.
        device: the device of the queries.
        first: position of the first query; ``K − Q`` by default; ``[B]`` or ``[B, Q]`` if it
            differs between entries.

    Raises:
        ValueError: the shape does not have four dimensions.

    Example:
        >>> from heedful.attention.masks import window
        >>> flex_mask(window(16), (1, 1, 512, 512)).sparsity() > 30
        True
    """
    if len(shape) != 4:
        raise ValueError(f"shape must be [B, H, Q, K], not {list(shape)}")

    def allows(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask.allows(_Point(shape, first, batch, head, query, key))

    batch, heads, queries, keys = shape
    return create_block_mask(allows, batch, heads, queries, keys, device=str(device))
