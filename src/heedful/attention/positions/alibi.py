"""Attention with linear biases: e_ij = q_i k_jᵀ/√d − m_h · |i − j|, the slopes m_h fixed.

Press, Smith, Lewis 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input Length
Extrapolation", section 3. For H heads, H a power of two, m_h = 2^(−8h/H), h = 1 … H. For other
numbers the authors' code takes the slopes of the next lower power P, then every other one of those
for 2P. The paper has keys before the query only, where −|i − j| = j − i.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from heedful.attention.positions.base import RelativePositions, check_heads, offsets, sum_type
from heedful.attention.positions.settings import HeadSizes, PositionSettings


def alibi_slopes(
    heads: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None
) -> Tensor:
    """The slopes m_h, ``[heads]``.

    Example:
        >>> alibi_slopes(6)
        tensor([0.2500, 0.0625, 0.0156, 0.0039, 0.5000, 0.1250])
    """
    power = 1 << (heads.bit_length() - 1)
    numbers = torch.arange(1, power + 1, dtype=dtype, device=device)
    between = torch.arange(heads - power, dtype=dtype, device=device) + 0.5
    return torch.exp2(torch.cat([numbers, between]) * (-8 / power))


class ALiBi(RelativePositions):
    """A fixed penalty on distance, with a slope for each head; nothing is learned.

    Args:
        heads: number of heads H.
        symmetric: ``−m |i − j|``; if false ``m (j − i)``, which is the same under a causal mask and
            favours keys after the query without one.

    Raises:
        ValueError: ``heads`` is below 1.

    Source: Press et al. 2022, section 3.

    Example:
        >>> query = torch.zeros(1, 2, 8)  # one head; its two queries are at positions 1 and 2
        >>> ALiBi(heads=1).bias(query, keys=3, positions=torch.tensor([1, 2]), scale=1.0) * 256
        tensor([[-1., -0., -1.],
                [-2., -1., -0.]])
    """

    class Settings(PositionSettings):
        """The table of a recipe."""

        relative: ClassVar[bool] = True
        name: Literal["alibi"] = "alibi"

        def build_relative(self, sizes: HeadSizes) -> "ALiBi":
            return ALiBi(sizes.heads)

    def __init__(self, heads: int, *, symmetric: bool = True) -> None:
        super().__init__()
        if heads < 1:
            raise ValueError(f"heads must be at least 1, not {heads}")
        self.heads, self.symmetric = heads, symmetric

    def bias(self, query: Tensor, keys: int, positions: Tensor, scale: float) -> Tensor:
        """``[H, Q, K]`` for ``query [.., H, Q, D]`` at integer ``positions [Q]``; ``[B, H, Q, K]``
        for positions of each row, ``[B, 1, Q]``.

        Raises:
            ValueError: the number of heads, or the number of positions, does not match the queries.
        """
        check_heads(self.heads, query, positions)
        kind = sum_type(query.dtype)  # Half precision cannot represent large distances.
        distances = offsets(positions, keys).to(kind)
        if self.symmetric:
            distances = -distances.abs()
        slopes = alibi_slopes(self.heads, kind, query.device)
        bias = (slopes.view(-1, 1, 1) * distances).to(query.dtype)
        return bias.squeeze(0) if self.heads == 1 and positions.dim() == 1 else bias

    def extra_repr(self) -> str:
        return f"{self.heads}, symmetric={self.symmetric}"
