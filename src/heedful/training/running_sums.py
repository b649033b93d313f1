"""Sums over steps that stay on the device: reading a number needs a GPU synchronisation."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class NotFinite(NamedTuple):
    """The first loss or norm that was not finite."""

    name: str
    step: int


class RunningSums:
    """Named losses that are summed over steps and seldom read.

    Sums are in float64 if the device supports it.

    Args:
        device: the device of the losses.
        sums: the initial sums.
        step: the last step that they include.
    """

    def __init__(self, device: torch.device, sums: Mapping[str, float], step: int) -> None:
        self._dtype = torch.float32 if device.type == "mps" else torch.float64
        self._zero = torch.zeros((), dtype=self._dtype, device=device)
        self.begin(sums, step)

    def begin(self, sums: Mapping[str, float], step: int) -> None:
        """Start again after ``step`` with these sums."""
        self._sums = {name: torch.full_like(self._zero, value) for name, value in sums.items()}
        self._step = step
        self._losses = self._all = self._zero
        """Sums of the losses, and of losses and norms; not finite from the first bad step on."""
        self._finite_losses = self._finite = self._zero
        """Number of steps for which they were finite."""

    def add(self, losses: Mapping[str, Tensor], norm: Tensor | None) -> None:
        """Add the losses of a step and check the norm of its gradients; all are 0-dimensional."""
        for name, value in losses.items():
            loss = value.detach().to(self._dtype)
            self._sums[name] = self._sums.get(name, self._zero) + loss
            self._losses = self._losses + loss
        self._all = self._all + self._losses
        if norm is not None:
            self._all = self._all + norm.detach().to(self._dtype)
        self._finite_losses = self._finite_losses + self._losses.isfinite()
        self._finite = self._finite + self._all.isfinite()

    def read(self) -> dict[str, float]:
        """The sums as Python numbers."""
        return {name: total.item() for name, total in self._sums.items()}

    def first_not_finite(self) -> NotFinite | None:
        """The first loss or norm since :meth:`begin` that was not finite."""
        if self._all.isfinite().item():
            return None
        finite, losses = int(self._finite.item()), int(self._finite_losses.item())
        name = "loss" if losses == finite else "gradient's norm"
        return NotFinite(name, self._step + finite + 1)
