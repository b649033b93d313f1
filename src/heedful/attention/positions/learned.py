"""Learned positions: one vector for each position, trained with the model.

Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from heedful.attention.places import last_place, places
from heedful.attention.positions.added import AddedPositions
from heedful.attention.positions.settings import PositionSettings


class Learned(AddedPositions):
    """Adds a learned vector for each of ``length`` positions to embeddings ``[B, L, dim]``.

    Example:
        >>> import torch
        >>> Learned(4, length=8)(torch.zeros(1, 2, 4)).shape
        torch.Size([1, 2, 4])
    """

    class Settings(PositionSettings):
        """The table of a recipe."""

        name: Literal["learned"] = "learned"

        def build_added(self, dim: int, length: int) -> "Learned":
            return Learned(dim, length)

    def __init__(self, dim: int, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, dim)
        nn.init.normal_(self.table.weight, std=dim**-0.5)

    def vectors(self, positions: Tensor) -> Tensor:
        return self.table.weight[positions]

    def forward(self, embedded: Tensor, first: int | Tensor = 0) -> Tensor:
        """Add the positions ``first, first + 1, …`` to ``embedded [B, L, dim]``.

        ``first`` may be different in each row: integers ``[B]``; or the positions, ``[B, L]``.

        Raises:
            ValueError: a position is beyond the table.
        """
        length = embedded.shape[-2]
        last = last_place(first, length)
        if last > self.table.num_embeddings:
            raise ValueError(
                f"{last} positions are needed, but only {self.table.num_embeddings} were learned"
            )
        if isinstance(first, Tensor):
            rows = places(first, torch.arange(length, device=first.device), 1)
            return embedded + self.vectors(rows)
        return embedded + self.table.weight[first:last]
