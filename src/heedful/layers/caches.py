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
        # The filled part alone is copied; the buffers keep room for what comes.
        room = (len(rows), self._key.shape[1], self._key.shape[2])
        chosen._key = self._key.new_empty(*room, self._key.shape[3])
        chosen._value = self._value.new_empty(*room, self._value.shape[3])
        filled = slice(None, self.length)
        chosen._key[:, :, filled] = torch.index_select(self._key[:, :, filled], 0, rows)
        chosen._value[:, :, filled] = torch.index_select(self._value[:, :, filled], 0, rows)
        return chosen
