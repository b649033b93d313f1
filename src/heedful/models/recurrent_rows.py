"""Rows of a search over sources: what is known of a source stays where it is.

Shapes: A sources, N rows, K rows a source at most, M rows chosen.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_KEPT = 3 / 4
"""Sources that no row reads are taken out once less than this share is read: each time the work of
all others shrinks by a quarter at least, so that moving them costs little."""


@dataclass(frozen=True)
class SourceRows:
    """Which of A sources each of N rows reads.

    Rows of one source are put beside each other, so that it is read where it is, by all of its rows
    at once, and never copied for each.
    """

    sources: Tensor
    """Each row's source ``[N]``, from 0 to A − 1."""
    count: int
    """A."""
    width: int
    """K."""
    slots: Tensor | None
    """Each row's place ``[N]`` among A · K; None where every source has K rows, in order."""

    @classmethod
    def one_each(cls, count: int, device: torch.device) -> "SourceRows":
        """A row for each of ``count`` sources."""
        return cls(torch.arange(count, device=device), count, 1, None)

    @classmethod
    def of(cls, sources: Tensor, count: int) -> "SourceRows":
        """Rows of any order, for ``sources [N]``."""
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
        """Rows ``[M]`` in that order, and which sources are left ``[A']``; None if all are."""
        sources = self.sources.index_select(0, rows)
        # Rows that change places among those of one source, as beams do, change nothing here.
        if sources.shape == self.sources.shape and torch.equal(sources, self.sources):
            return self, None
        read = torch.zeros(self.count, dtype=torch.bool, device=sources.device)
        read[sources] = True
        left = read.nonzero().squeeze(1)
        if len(left) >= _KEPT * self.count:
            return SourceRows.of(sources, self.count), None
        return SourceRows.of((read.cumsum(0) - 1)[sources], len(left)), left

    def spread(self, x: Tensor) -> Tensor:
        """``[A, K, ..]`` from ``x [N, ..]``: a source's rows beside each other, 0 where none is."""
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
        """What each row reads of ``part [A, ..]``, copied for it: ``[N, ..]``."""
        return part if self.alone else part.index_select(0, self.sources)
