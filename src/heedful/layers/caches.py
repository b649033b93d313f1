"""What a decoder's attention has seen so far, kept from step to step.

Choosing rows anew moves keys and values. In caches that are read in place it moves an index, and
rows may join while others are under way: each has its own first step.
Shapes: N rows of search, M selected rows, H heads, T steps, D width.
"""

from collections.abc import Iterator, Sequence
from typing import Self

import torch
from torch import Tensor

from heedful.attention import Memory
from heedful.attention.step_memory import StepMemory
from heedful.kernels.cached_attention import Steps


class KeyValueCache:
    """Keys and values ``[N, H, L, D]`` of the steps so far, in buffers that double when full."""

    def __init__(self) -> None:
        self._key: Tensor | None = None
        self._value: Tensor | None = None
        self.length = 0

    def append(self, step: Memory) -> Memory:
        """Add one or more positions ``[N, H, steps, D]`` and return all so far."""
        first, self.length = self.length, self.length + step.key.shape[-2]
        if self._key is None or self._value is None or self.length > self._key.shape[-2]:
            self._grow(step, max(16, 2 * self.length), first)
        assert self._key is not None
        assert self._value is not None
        self._key[:, :, first : self.length] = step.key
        self._value[:, :, first : self.length] = step.value
        return Memory(self._key[:, :, : self.length], self._value[:, :, : self.length])

    def _grow(self, step: Memory, capacity: int, filled: int) -> None:
        rows, heads, _, width = step.key.shape
        key = step.key.new_empty(rows, heads, capacity, width)
        value = step.value.new_empty(rows, heads, capacity, step.value.shape[-1])
        if self._key is not None and self._value is not None:
            key[:, :, :filled] = self._key[:, :, :filled]
            value[:, :, :filled] = self._value[:, :, :filled]
        self._key, self._value = key, value

    def select(self, rows: Tensor) -> "KeyValueCache":
        """The cache of ``rows [M]``, in that order."""
        chosen = KeyValueCache()
        if self._key is None or self._value is None:
            return chosen
        chosen.length = self.length
        chosen._key = _rows(self._key, rows, self.length)
        chosen._value = _rows(self._value, rows, self.length)
        return chosen


def _rows(buffer: Tensor, rows: Tensor, length: int) -> Tensor:
    """A buffer for ``rows`` of ``[N, H, L, D]``: only what is filled is copied, and only once."""
    chosen = buffer.new_empty(len(rows), *buffer.shape[1:])
    filled, place = buffer[:, :, :length], chosen[:, :, :length]
    if torch.is_grad_enabled() and buffer.requires_grad:  # out= knows no gradient
        place.copy_(filled.index_select(0, rows))
    else:
        torch.index_select(filled, 0, rows, out=place)
    return chosen


_HELD = 2
"""Rows of steps that are held for one that a row of search reads at most: then the others go."""


class Lineage:
    """Which row of each step the rows of search come from; all layers have the same."""

    def __init__(self, rows: int) -> None:
        self._index = torch.zeros(rows, 16, dtype=torch.long)
        self.length = 0
        self.firsts: Tensor | None = None
        """Each row's first step ``[N]``; None where that is the first of all."""

    @property
    def position(self) -> int | Tensor:
        """Where the next step stands, for all rows or for each ``[N]``."""
        return self.length if self.firsts is None else self.length - self.firsts

    @property
    def read(self) -> int:
        """Steps that all rows read, each counted for itself."""
        rows, position = len(self._index), self.position
        return rows * position if isinstance(position, int) else int(position.sum())

    def reach(self, length: int) -> Tensor:
        """The index ``[N, length]``; in steps that are new, each row is its own."""
        rows = len(self._index)
        if length > self._index.shape[1]:
            larger = torch.zeros(rows, 2 * length, dtype=torch.long)
            larger[:, : self.length] = self._index[:, : self.length]
            self._index = larger
        if length > self.length:
            self._index[:, self.length : length] = torch.arange(rows).unsqueeze(1)
            self.length = length
        return self._index[:, :length]

    def select(self, rows: Tensor) -> Self:
        """That of ``rows [M]``, in that order."""
        chosen = type(self)(0)
        chosen._index, chosen.length = self._index.index_select(0, rows), self.length
        if self.firsts is not None:
            chosen.firsts = self.firsts.index_select(0, rows)
        return chosen

    def join(self, other: Self) -> tuple[Self, int]:
        """That of these rows and of others, which begin now; and how many steps, from the first
        on, nobody reads: those are left out."""
        rows, more = len(self._index), len(other._index)
        firsts = torch.full((rows + more,), self.length)
        firsts[:rows] = 0 if self.firsts is None else self.firsts
        unread = int(firsts.min())
        chosen = type(self)(rows + more)
        chosen.firsts, chosen.length = firsts - unread, self.length - unread
        chosen._index = torch.zeros(rows + more, max(16, 2 * chosen.length), dtype=torch.long)
        chosen._index[:rows, : chosen.length] = self._index[:, unread : self.length]
        return chosen, unread

    def tidy(self) -> list[Tensor]:
        """The rows of each step that are read, which from now on are all that it has."""
        assert self.firsts is not None
        kept = []
        for step in range(self.length):
            reading = self.firsts <= step
            rows, places = self._index[reading, step].unique(return_inverse=True)
            self._index[:, step].zero_()[reading] = places
            kept.append(rows)
        return kept


class StepCache:
    """Keys and values of the steps so far, each where its projection has left it."""

    def __init__(self, lineage: Lineage, steps: Steps | None = None) -> None:
        self.lineage, self.steps = lineage, steps or Steps()

    @property
    def length(self) -> int:
        """How many positions there are."""
        return self.steps.length

    def append(self, step: Memory) -> Memory | StepMemory:
        """Add one or more positions ``[N, H, steps, D]`` and return all so far.

        One position is followed by one query a row; more are read with a mask, and so are given
        moved together.
        """
        self.steps.append(step.key, step.value)
        index = self.lineage.reach(self.steps.length)
        if step.key.shape[2] == 1:
            return StepMemory(self.steps, index, None, self.lineage.firsts)
        return Memory(*self.steps.gather(index))

    def select(self, lineage: Lineage) -> "StepCache":
        """The cache of the rows of ``lineage``."""
        return StepCache(lineage, self.steps.copy())


Cache = KeyValueCache | StepCache


class LayerCaches:
    """The caches of a decoder's layers.

    Args:
        layers: how many.
        rows: rows of search N.
        in_place: whether steps are read where they are: on the CPU only, and one by one.
    """

    def __init__(self, layers: int, rows: int, *, in_place: bool = False) -> None:
        self._lineage = Lineage(rows) if in_place else None
        self._caches: list[Cache] = [
            KeyValueCache() if self._lineage is None else StepCache(self._lineage)
            for _ in range(layers)
        ]

    def __iter__(self) -> Iterator[Cache]:
        return iter(self._caches)

    @property
    def length(self) -> int:
        """How many steps there are."""
        return self._caches[0].length

    @property
    def position(self) -> int | Tensor:
        """Where the next step stands, for all rows or for each ``[N]``."""
        return self.length if self._lineage is None else self._lineage.position

    def take(self, step: Sequence[tuple[Tensor, Tensor]]) -> list[StepMemory]:
        """Add one position, each layer's key and value ``[N, 1, H, D]``, and return all so far.

        Raises:
            RuntimeError: steps cannot be read where they are.
        """
        if self._lineage is None:
            raise RuntimeError("these caches move what is chosen")
        index = self._lineage.reach(self.length + 1)
        found = []
        for cache, (key, value) in zip(self._caches, step, strict=True):
            assert isinstance(cache, StepCache)
            cache.steps.take(key, value)
            found.append(StepMemory(cache.steps, index, None, self._lineage.firsts))
        return found

    def select(self, rows: Tensor) -> Self:
        """The caches of ``rows [M]``, in that order."""
        chosen = type(self).__new__(type(self))
        lineage = chosen._lineage = None if self._lineage is None else self._lineage.select(rows)
        chosen._caches = []
        for cache in self._caches:
            if isinstance(cache, KeyValueCache):
                chosen._caches.append(cache.select(rows))
            elif lineage is not None:
                chosen._caches.append(cache.select(lineage))
        return chosen

    @property
    def can_join(self) -> bool:
        """Whether others may join: where steps are read where they are, and were made singly."""
        one = self._caches[0]
        return isinstance(one, StepCache) and len(one.steps.parts) == one.length

    def join(self, other: Self) -> Self:
        """The caches of these rows and of others, whose first step is the next.

        Steps that nobody reads any more are forgotten, and rows of steps when they are many.

        Raises:
            ValueError: the others have made steps.
        """
        if other.length:
            raise ValueError(f"rows join before their first step; these have made {other.length}")
        assert self._lineage is not None
        assert other._lineage is not None
        chosen = type(self).__new__(type(self))
        lineage, unread = self._lineage.join(other._lineage)
        steps = [
            cache.steps.after(unread) for cache in self._caches if isinstance(cache, StepCache)
        ]
        if sum(len(key) for key, _ in steps[0].parts) > _HELD * lineage.read:
            kept = lineage.tidy()
            steps = [one.after(0, kept) for one in steps]
        chosen._lineage = lineage
        chosen._caches = [StepCache(lineage, one) for one in steps]
        return chosen
