"""Buffers that are computed from a module's settings and are not part of its state dict."""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn


class WithConstants(nn.Module):
    """A module whose constant buffers are recomputed whenever it is moved.

    ``to_empty`` leaves buffers uninitialised, and loading a state dict does not restore
    non-persistent buffers.
    """

    _constant_names: tuple[str, ...] = ()

    def constants(self) -> dict[str, Tensor]:
        """The buffers' values by name, on any device."""
        raise NotImplementedError

    def register_constants(self) -> None:
        """Register the buffers of :meth:`constants`; called at the end of ``__init__``."""
        made = self.constants()
        self._constant_names = tuple(made)
        for name, tensor in made.items():
            self.register_buffer(name, tensor, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        before = {name: getattr(self, name) for name in self._constant_names}
        if any(not tensor.is_meta for tensor in before.values()):
            with torch.device("cpu"):
                made: dict[str, Any] = self.constants()
            for name, tensor in before.items():
                setattr(self, name, made[name].to(tensor.device, tensor.dtype))
        return self
