"""Sinusoidal positions: PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos of the same.

Vaswani et al. 2017, section 3.5.
"""

from typing import Literal

import torch
from torch import Tensor

from heedful.attention.places import last_place, places
from heedful.attention.positions.added import AddedPositions
from heedful.attention.positions.settings import PositionSettings
from heedful.basics.constants import WithConstants


def sinusoids(positions: Tensor, dim: int) -> Tensor:
    """Position vectors ``[.., dim]`` for integer ``positions [..]``, in float32.

    Raises:
        ValueError: the width is odd.

    Example:
        >>> sinusoids(torch.tensor([0]), 4)
        tensor([[0., 1., 0., 1.]])
    """
    if dim % 2:
        raise ValueError(f"sinusoidal positions need an even width, not {dim}")
    exponents = torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64) / dim
    angles = positions.unsqueeze(-1).double() * 10000.0**-exponents  # [.., dim / 2]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


class Sinusoidal(WithConstants, AddedPositions):
    """Adds sinusoids to embeddings ``[B, L, dim]``; any length, the table grows as needed.

    Example:
        >>> Sinusoidal(4)(torch.zeros(1, 2, 4)).shape
        torch.Size([1, 2, 4])
    """

    class Settings(PositionSettings):
        """The table of a recipe."""

        name: Literal["sinusoidal"] = "sinusoidal"

        def build_added(self, dim: int, length: int) -> "Sinusoidal":
            return Sinusoidal(dim)

    table: Tensor

    def __init__(self, dim: int, length: int = 256) -> None:
        super().__init__()
        self.dim, self.length = dim, length
        self.register_constants()

    def constants(self) -> dict[str, Tensor]:
        return {"table": sinusoids(torch.arange(self.length), self.dim)}

    def vectors(self, positions: Tensor) -> Tensor:
        return sinusoids(positions, self.dim)

    def forward(self, embedded: Tensor, first: int | Tensor = 0) -> Tensor:
        """Add the positions ``first, first + 1, …`` to ``embedded [B, L, dim]``.

        ``first`` may be different in each row: integers ``[B]``; or the positions, ``[B, L]``.
        """
        length = embedded.shape[-2]
        last = last_place(first, length)
        table = self.table
        if last > len(table):
            positions = torch.arange(max(last, 2 * len(table)), device=table.device)
            self.table = table = sinusoids(positions, self.dim)
        if isinstance(first, Tensor):
            rows = places(first, torch.arange(length, device=first.device), 1)
            return embedded + table[rows].to(embedded.dtype)
        return embedded + table[first:last].to(embedded.dtype)
