"""The mapping of search rows to sources, whose tensors are not copied.

Shapes: A sources, N rows, at most K rows per source, M selected rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_KEPT = 3 / 4
"""Unused sources are removed when the fraction of used sources falls below this value. Each removal
saves at least a quarter of the work, so that copying the others pays off."""


@dataclass(frozen=True)
class SourceRows:
    """Maps each of N rows to the source, of A, that it reads.

    Rows of one source are grouped, so that they read it together and it is not copied for each row.
    """

    sources: Tensor
    """Each row's source ``[N]``, from 0 to A − 1."""
    count: int
    """The number of sources A."""
    width: int
    """The maximum number of rows per source, K."""
    slots: Tensor | None
    """Each row's index ``[N]`` among A · K; None if every source has K rows, in order."""

    @classmethod
    def one_each(cls, count: int, device: torch.device) -> "SourceRows":
        """One row for each of ``count`` sources."""
        return cls(torch.arange(count, device=device), count, 1, None)

    @classmethod
    def of(cls, sources: Tensor, count: int) -> "SourceRows":
        """Rows in any order, for ``sources [N]``."""
        rows = torch.bincount(sources, minlength=count)
        width = max(1, int(rows.max())) if count else 1
        device = sources.device
        if len(sources) == count * width:
            regular = torch.arange(count, device=device).repeat_interleave(width)
            if torch.equal(sources, regular):
                return cls(sources, count, width, None)
        order = sources.argsort(stable=True)
        first = rows.cumsum(0) - rows
        ordered = sources[order]
        places = torch.arange(len(sources), device=device) - first[ordered]
        slots = torch.empty_like(sources)
        slots[order] = ordered * width + places
        return cls(sources, count, width, slots)

    @property
    def alone(self) -> bool:
        """Whether row i is the only one of source i."""
        return self.width == 1 and self.slots is None

    def select(self, rows: Tensor) -> tuple["SourceRows", Tensor | None]:
        """Rows ``[M]``, in this order, and the remaining sources ``[A']``; None if all remain."""
        sources = self.sources.index_select(0, rows)
        # Reordering rows within their source, as in beam search, has no effect here.
        if sources.shape == self.sources.shape and torch.equal(sources, self.sources):
            return self, None
        read = torch.zeros(self.count, dtype=torch.bool, device=sources.device)
        read[sources] = True
        left = read.nonzero().squeeze(1)
        if len(left) >= _KEPT * self.count:
            return SourceRows.of(sources, self.count), None
        return SourceRows.of((read.cumsum(0) - 1)[sources], len(left)), left

    def spread(self, x: Tensor) -> Tensor:
        """``[A, K, ..]`` from ``x [N, ..]``: rows grouped by source, padded with 0."""
        shape = self.count, self.width, *x.shape[1:]
        if self.slots is None:
            return x.view(shape)
        empty = x.new_zeros(self.count * self.width, *x.shape[1:])
        return empty.index_copy(0, self.slots, x).view(shape)

    def collect(self, x: Tensor) -> Tensor:
        """``[N, ..]`` from ``x [A, K, ..]``."""
        flat = x.flatten(0, 1)
        return flat if self.slots is None else flat.index_select(0, self.slots)

    def copied(self, part: Tensor) -> Tensor:
        """A copy of ``part [A, ..]`` for each row: ``[N, ..]``."""
        return part if self.alone else part.index_select(0, self.sources)
