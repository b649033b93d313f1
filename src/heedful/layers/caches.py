"""Key–value caches: what self-attention has seen so far, kept from step to step."""

import torch
from torch import Tensor

from heedful.attention import Memory


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
