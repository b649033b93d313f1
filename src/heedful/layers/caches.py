"""What a decoder's attention has seen so far, kept from step to step.

Where steps can be read where they are (:func:`heedful.attention.stepping.can_step`), choosing rows
anew moves an index; elsewhere it moves keys and values.
Shapes: B sources, N rows of search, M selected rows, H heads, S source tokens, T steps, D width.
"""

from collections.abc import Iterator, Sequence
from typing import Self

import torch
from torch import Tensor

from heedful.attention import Memory
from heedful.attention.kernels.steps import Steps
from heedful.attention.masks import padding
from heedful.attention.stepping import StepMemory, can_step


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


class Lineage:
    """Which row of each step the rows of search come from; all layers have the same."""

    def __init__(self, rows: int) -> None:
        self._index = torch.zeros(rows, 16, dtype=torch.long)
        self.length = 0

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
        return chosen


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
            return StepMemory(self.steps, index)
        return Memory(*self.steps.gather(index))

    def select(self, lineage: Lineage) -> "StepCache":
        """The cache of the rows of ``lineage``."""
        return StepCache(lineage, self.steps.copy())


Cache = KeyValueCache | StepCache


class LayerCaches:
    """The caches of a decoder's layers.

    Args:
        layers: how many.
        like: a tensor as the model computes them.
        rows: rows of search N.
    """

    def __init__(self, layers: int, like: Tensor, rows: int) -> None:
        self._lineage = Lineage(rows) if can_step(like) else None
        self._caches: list[Cache] = [
            KeyValueCache() if self._lineage is None else StepCache(self._lineage)
            for _ in range(layers)
        ]

    def __iter__(self) -> Iterator[Cache]:
        return iter(self._caches)

    @property
    def length(self) -> int:
        """How many positions there are."""
        return self._caches[0].length

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
            found.append(StepMemory(cache.steps, index))
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


class SourceMemories:
    """What each layer's attention remembers of the sources, and which source each row reads.

    Args:
        memories: of each layer, ``[B, H, S, D]``.
        lengths: of the sources, integers ``[B]``.
    """

    def __init__(self, memories: Sequence[Memory], lengths: Tensor) -> None:
        self._memories, self._lengths = list(memories), lengths.long().contiguous()
        self._rows = torch.arange(len(lengths), device=lengths.device)
        self._steps: list[Steps] | None = None
        if can_step(memories[0].key):
            self._steps = [Steps() for _ in memories]
            for steps, memory in zip(self._steps, memories, strict=True):
                steps.append(*memory)

    @classmethod
    def packed(cls, steps: Sequence[Steps], first: Tensor, lengths: Tensor) -> Self:
        """Of steps ``[T]`` of each layer, in which a source's tokens begin at ``first [B]``."""
        made = cls.__new__(cls)
        made._memories, made._steps = [], list(steps)
        made._rows, made._lengths = first, lengths.long().contiguous()
        return made

    def read(self) -> Iterator[tuple[Memory | StepMemory, Tensor | None]]:
        """Each layer's memory, and the mask ``[N, 1, 1, S]`` where it is not in the memory."""
        if self._steps is not None:
            yield from ((memory, None) for memory in self.in_place())
            return
        key = self._memories[0].key
        mask = padding(self._lengths).dense((len(key), 1, 1, key.shape[-2]), key.device)
        for memory in self._memories:
            yield memory, mask

    def in_place(self) -> list[StepMemory]:
        """Each layer's memory where it is.

        Raises:
            RuntimeError: it cannot be read there.
        """
        if self._steps is None:
            raise RuntimeError("these memories move what is chosen")
        index = self._rows.unsqueeze(1)
        return [
            StepMemory(steps, index.expand(-1, steps.length), self._lengths)
            for steps in self._steps
        ]

    def select(self, rows: Tensor) -> Self:
        """What ``rows [M]`` read: nothing is copied while each still reads its own source, nor
        where steps are read where they are."""
        chosen = type(self).__new__(type(self))
        chosen._memories, chosen._steps = self._memories, self._steps
        chosen._rows = self._rows.index_select(0, rows)
        chosen._lengths = self._lengths.index_select(0, rows)
        if self._steps is None and not torch.equal(chosen._rows, self._rows):
            chosen._memories = [
                Memory(memory.key.index_select(0, rows), memory.value.index_select(0, rows))
                for memory in self._memories
            ]
        return chosen
