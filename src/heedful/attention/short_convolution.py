"""A short causal convolution of the queries, keys and values of heads with a state.

A state holds sums, in which a key cannot be found by the one before it. A convolution over a few
positions gives each key and query its predecessors: Poli et al. 2023, section 3; with the delta
rule, Yang, Wang, Zhang, Shen, Kim 2024, section 3.3.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention.delta import DeltaState
from heedful.attention.linear import LinearState


class ConvolvedState(NamedTuple):
    """A memory, and the last inputs of the convolution."""

    sums: LinearState | DeltaState
    """The memory of the convolved keys and values."""
    last: Tensor
    """``[B, size − 1, 3 · H · D]``: queries, keys and values before the convolution."""

    def select(self, rows: Tensor) -> "ConvolvedState":
        """The state of ``rows [M]``, in that order."""
        return ConvolvedState(self.sums.select(rows), self.last[rows])


def parted(
    memory: LinearState | DeltaState | ConvolvedState | None,
) -> tuple[Any, Tensor | None]:
    """The sums of a memory, and the last inputs of its convolution if it has one."""
    return memory if isinstance(memory, ConvolvedState) else (memory, None)


class ShortConvolution(nn.Module):
    """Each component of a position is a weighted sum of its last ``size`` inputs.

    ``y_t = Σ_i w_i ⊙ x_{t−i}`` for i from 0 to ``size`` − 1. Inputs before the first
    position are 0.

    Args:
        width: the number of components.
        size: the number of positions, at least 1.

    Raises:
        ValueError: ``size`` is below 1.

    Example:
        >>> convolution = ShortConvolution(3, size=2)
        >>> result, last = convolution(torch.zeros(1, 5, 3))
        >>> result.shape, last.shape
        (torch.Size([1, 5, 3]), torch.Size([1, 1, 3]))
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size}")
        self.size = size
        self.weight = nn.Parameter(torch.empty(size, width))
        nn.init.uniform_(self.weight, -(size**-0.5), size**-0.5)

    def forward(self, x: Tensor, last: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The sums ``[B, L, width]``, and the last inputs ``[B, size − 1, width]``.

        Args:
            x: ``[B, L, width]``.
            last: the inputs before ``x``, as an earlier call returned them; zeros if None.
        """
        if last is None:
            last = x.new_zeros(*x.shape[:-2], self.size - 1, x.shape[-1])
        joined, length = torch.cat([last.to(x.dtype), x], -2), x.shape[-2]
        parts = (
            joined.narrow(-2, self.size - 1 - back, length) * self.weight[back]
            for back in range(self.size)
        )
        result = sum(parts, torch.zeros((), dtype=x.dtype, device=x.device))
        return result, joined.narrow(-2, length, self.size - 1)
