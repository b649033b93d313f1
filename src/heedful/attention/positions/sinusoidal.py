"""Sinusoidal positions: PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos of the same.

Vaswani et al. 2017, section 3.5. The library tensor2tensor and models that follow it, such as
M2M-100, have the frequencies 10000^(−i/(d/2 − 1)) instead, i = 0, …, d/2 − 1.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from heedful.attention.places import last_place, places
from heedful.attention.positions.added import AddedPositions
from heedful.attention.positions.settings import PositionSettings
from heedful.basics.constants import WithConstants
from heedful.basics.limits import MOST_POSITIONS

Frequencies = Literal["paper", "tensor2tensor"]
"""``paper``: 10000^(−2i/d); ``tensor2tensor``: 10000^(−i/(d/2 − 1)); i = 0, …, d/2 − 1."""


def sinusoids(positions: Tensor, dim: int, frequencies: Frequencies = "paper") -> Tensor:
    """Position vectors ``[.., dim]`` for integer ``positions [..]``, in float32.

    Raises:
        ValueError: the width is odd, or below 4 for the frequencies ``tensor2tensor``.

    Example:
        >>> sinusoids(torch.tensor([0]), 4)
        tensor([[0., 1., 0., 1.]])
    """
    if dim % 2:
        raise ValueError(f"sinusoidal positions need an even width, not {dim}")
    if frequencies == "tensor2tensor" and dim < 4:
        raise ValueError(f"the frequencies 'tensor2tensor' need a width of at least 4, not {dim}")
    steps = dim if frequencies == "paper" else dim - 2
    exponents = torch.arange(0, dim, 2, device=positions.device, dtype=torch.float64) / steps
    angles = positions.unsqueeze(-1).double() * 10000.0**-exponents  # [.., dim / 2]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


class Sinusoidal(WithConstants, AddedPositions):
    """Adds sinusoids to embeddings ``[B, L, dim]``; any length, the table grows as needed.

    Args:
        dim: width of the embeddings.
        length: number of positions in the table at first.
        first: the position p of the first token.
        frequencies: see :data:`Frequencies`.

    Example:
        >>> Sinusoidal(4)(torch.zeros(1, 2, 4)).shape
        torch.Size([1, 2, 4])
    """

    class Settings(PositionSettings):
        """The table of a recipe."""

        name: Literal["sinusoidal"] = "sinusoidal"
        first: int = Field(0, ge=0, le=MOST_POSITIONS)
        """The position p of the first token; 2 in M2M-100."""
        frequencies: Frequencies = "paper"

        @property
        def of_paper(self) -> bool:
            """Whether positions and frequencies are those of the paper."""
            return self.first == 0 and self.frequencies == "paper"

        def build_added(self, dim: int, length: int) -> "Sinusoidal":
            return Sinusoidal(dim, first=self.first, frequencies=self.frequencies)

    table: Tensor

    def __init__(
        self, dim: int, length: int = 256, *, first: int = 0, frequencies: Frequencies = "paper"
    ) -> None:
        super().__init__()
        self.dim, self.length = dim, length
        self.first, self.frequencies = first, frequencies
        self.register_constants()

    def constants(self) -> dict[str, Tensor]:
        return {"table": self.vectors(torch.arange(self.length))}

    def vectors(self, positions: Tensor) -> Tensor:
        return sinusoids(positions + self.first, self.dim, self.frequencies)

    def forward(self, embedded: Tensor, first: int | Tensor = 0) -> Tensor:
        """Add the positions ``first, first + 1, …`` to ``embedded [B, L, dim]``.

        ``first`` may be different in each row: integers ``[B]``; or the positions, ``[B, L]``.
        """
        length = embedded.shape[-2]
        last = last_place(first, length)
        table = self.table
        if last > len(table):
            positions = torch.arange(max(last, 2 * len(table)), device=table.device)
            self.table = table = self.vectors(positions)
        if isinstance(first, Tensor):
            rows = places(first, torch.arange(length, device=first.device), 1)
            return embedded + table[rows].to(embedded.dtype)
        return embedded + table[first:last].to(embedded.dtype)
