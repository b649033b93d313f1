"""Positions of your own: a learned vector for each binary digit of the position, summed."""

import torch
from torch import Tensor, nn

from heedful.attention.positions import AddedPositions, register_position


class BinaryPositions(AddedPositions):
    def __init__(self, dim: int, digits: int) -> None:
        super().__init__()
        self.digits = nn.Linear(digits, dim, bias=False)

    def vectors(self, positions: Tensor) -> Tensor:
        places = torch.arange(self.digits.in_features, device=positions.device)
        digits = (positions.unsqueeze(-1) >> places) & 1  # [.., digits]
        found: Tensor = self.digits(digits.to(self.digits.weight.dtype))
        return found


register_position("binary", lambda dim, length: BinaryPositions(dim, length.bit_length()))
