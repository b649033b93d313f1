"""The caches of a decoder's self-attention: keys and values, or their sums.

Selecting rows copies keys and values. In caches that are read in place, it only changes an index,
and rows can join a search that is in progress: each row has its own first step.
Shapes: N rows of a search, M selected rows, H heads, T steps, D width.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Self

import torch
from torch import Tensor

from heedful.attention import DeltaState, LinearState, Memory
from heedful.attention.short_convolution import ConvolvedState
from heedful.attention.state_heads import StateAttention
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
    """Copy ``rows`` of ``[N, H, L, D]`` to a new buffer: only the filled part, and only once."""
    chosen = buffer.new_empty(len(rows), *buffer.shape[1:])
    filled, place = buffer[:, :, :length], chosen[:, :, :length]
    if torch.is_grad_enabled() and buffer.requires_grad:  # out= does not support gradients
        place.copy_(filled.index_select(0, rows))
    else:
        torch.index_select(filled, 0, rows, out=place)
    return chosen


_HELD = 2
"""The maximum number of stored rows for each row that is read; above it, unused rows are
dropped."""


class Lineage:
    """For each row of the search, its row in each step; shared by all layers."""

    def __init__(self, rows: int) -> None:
        self._index = torch.zeros(rows, 16, dtype=torch.long)
        self.length = 0
        self.firsts: Tensor | None = None
        """Each row's first step ``[N]``; None if all rows begin at step 0."""

    @property
    def position(self) -> int | Tensor:
        """The position of the next step, for all rows or for each row ``[N]``."""
        return self.length if self.firsts is None else self.length - self.firsts

    @property
    def read(self) -> int:
        """The number of (row, step) pairs that are read."""
        rows, position = len(self._index), self.position
        return rows * position if isinstance(position, int) else int(position.sum())

    def reach(self, length: int) -> Tensor:
        """The index ``[N, length]``; in new steps, row n of the search is row n of the step."""
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
        """The lineage of ``rows [M]``, in this order."""
        chosen = type(self)(0)
        chosen._index, chosen.length = self._index.index_select(0, rows), self.length
        if self.firsts is not None:
            chosen.firsts = self.firsts.index_select(0, rows)
        return chosen

    def join(self, other: Self) -> tuple[Self, int]:
        """Append rows that begin with the next step. Returns the lineage without the first steps
        that no row reads any more, and their number."""
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
        """Drop unused rows: returns the rows of each step to keep, and renumbers the index."""
        assert self.firsts is not None
        kept = []
        for step in range(self.length):
            reading = self.firsts <= step
            rows, places = self._index[reading, step].unique(return_inverse=True)
            self._index[:, step].zero_()[reading] = places
            kept.append(rows)
        return kept


class StepCache:
    """Keys and values of the steps so far, each in the tensors of its projection."""

    def __init__(self, lineage: Lineage, steps: Steps | None = None) -> None:
        self.lineage, self.steps = lineage, steps or Steps()

    @property
    def length(self) -> int:
        """The number of positions."""
        return self.steps.length

    def append(self, step: Memory) -> Memory | StepMemory:
        """Add one or more positions ``[N, H, steps, D]`` and return all so far.

        After a single position, one query per row reads in place. Several positions are read with
        a mask and therefore returned as contiguous tensors.
        """
        self.steps.append(step.key, step.value)
        index = self.lineage.reach(self.steps.length)
        if step.key.shape[2] == 1:
            return StepMemory(self.steps, index, None, self.lineage.firsts)
        return Memory(*self.steps.gather(index))

    def select(self, lineage: Lineage) -> "StepCache":
        """A cache with the rows of ``lineage``."""
        return StepCache(lineage, self.steps.copy())


_State = LinearState | DeltaState | ConvolvedState


class SumCache:
    """The state of linear attention or the delta rule after the steps so far; it does not grow."""

    def __init__(self, state: _State | None = None, length: int = 0) -> None:
        self.state, self.length = state, length

    def step(self, heads: StateAttention, x: Tensor) -> Tensor:
        """The result for new positions ``x [N, steps, D]``, which are added to the sums."""
        result, self.state = heads.step(x, x, memory=self.state)
        self.length += x.shape[1]
        return result

    def select(self, rows: Tensor) -> "SumCache":
        """The cache of ``rows [M]``, in that order."""
        return SumCache(None if self.state is None else self.state.select(rows), self.length)


Cache = KeyValueCache | StepCache | SumCache


class LayerCaches:
    """The caches of a decoder's layers.

    Args:
        layers: number of layers.
        rows: number of rows N of the search.
        in_place: whether to read steps in place; only on the CPU and for single steps.
        linear: the layers with linear attention or the delta rule, counted from 0. With them, rows
            cannot join.
    """

    def __init__(
        self, layers: int, rows: int, *, in_place: bool = False, linear: Collection[int] = ()
    ) -> None:
        self._lineage = Lineage(rows) if in_place and len(linear) < layers else None
        self._caches: list[Cache] = [
            SumCache() if layer in linear else self._of_keys() for layer in range(layers)
        ]

    def _of_keys(self) -> KeyValueCache | StepCache:
        return KeyValueCache() if self._lineage is None else StepCache(self._lineage)

    def __iter__(self) -> Iterator[Cache]:
        return iter(self._caches)

    @property
    def length(self) -> int:
        """The number of steps; 0 if there are no layers."""
        return self._caches[0].length if self._caches else 0

    @property
    def position(self) -> int | Tensor:
        """The position of the next step, for all rows or for each row ``[N]``."""
        return self.length if self._lineage is None else self._lineage.position

    def take(self, step: Sequence[tuple[Tensor, Tensor]]) -> list[StepMemory]:
        """Add one position, each layer's key and value ``[N, 1, H, D]``, and return all so far.

        Raises:
            RuntimeError: these caches are not read in place.
        """
        if self._lineage is None:
            raise RuntimeError("these caches are not read in place")
        index = self._lineage.reach(self.length + 1)
        found = []
        for cache, (key, value) in zip(self._caches, step, strict=True):
            assert isinstance(cache, StepCache)
            cache.steps.take(key, value)
            found.append(StepMemory(cache.steps, index, None, self._lineage.firsts))
        return found

    def select(self, rows: Tensor) -> Self:
        """The caches of ``rows [M]``, in this order."""
        chosen = type(self).__new__(type(self))
        lineage = chosen._lineage = None if self._lineage is None else self._lineage.select(rows)
        chosen._caches = []
        for cache in self._caches:
            if not isinstance(cache, StepCache):
                chosen._caches.append(cache.select(rows))
            elif lineage is not None:
                chosen._caches.append(cache.select(lineage))
        return chosen

    @property
    def can_join(self) -> bool:
        """Whether other rows can join: the caches are read in place and have single steps only."""
        return bool(self._caches) and all(
            isinstance(one, StepCache) and len(one.steps.parts) == one.length
            for one in self._caches
        )

    def join(self, other: Self) -> Self:
        """Append rows that begin with the next step.

        Steps that no row reads any more are dropped, and unused rows of steps if there are many.

        Raises:
            ValueError: the other caches already have steps, or a layer is linear.
        """
        if any(isinstance(one, SumCache) for one in self._caches):
            raise ValueError("rows cannot join sums of linear attention that are in progress")
        if other.length:
            raise ValueError(f"rows must join before their first step; not after {other.length}")
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
