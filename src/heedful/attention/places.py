"""Positions of queries and keys: one list for all entries of a batch, or one for each."""

from collections.abc import Sequence

import torch
from torch import Tensor

First = int | Tensor
"""The position of the first row: one integer, integers ``[B]``, or the positions of all rows,
``[B, L]``."""


def places(first: First, rows: Tensor, leading: int) -> Tensor:
    """The positions of ``rows [q]``: ``[q]``, or ``[B, 1.., q]`` if they differ between entries.

    Args:
        first: the position of row 0.
        rows: indices of the rows.
        leading: number of dimensions before the rows.

    Raises:
        TypeError: ``first`` is a tensor of no integers.
        ValueError: ``first`` is a tensor, but not ``[B]`` or ``[B, L]``, or there is no batch.

    Example:
        >>> places(torch.tensor([0, 7]), torch.arange(3), leading=2).tolist()
        [[[0, 1, 2]], [[7, 8, 9]]]
    """
    if not isinstance(first, Tensor) or first.dim() == 0:  # torch.jit traces sizes as tensors.
        return rows + first
    kind = first.dtype
    if kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise TypeError(f"first must be integers, not {kind}")
    if first.dim() not in (1, 2) or leading < 1:
        raise ValueError(
            f"first {list(first.shape)}: expected an integer, or integers [B] or [B, positions] "
            "for a batch"
        )
    first = first.to(rows.device)
    starts = first.unsqueeze(-1) + rows if first.dim() == 1 else first[:, rows]
    return starts.reshape(len(first), *[1] * (leading - 1), len(rows))


def last_place(first: First, length: int) -> int:
    """The number of positions up to the last of ``length`` rows.

    Example:
        >>> last_place(torch.tensor([0, 7]), 3)
        10
    """
    if not isinstance(first, Tensor):
        return first + length
    if not first.numel():
        return 0
    return int(first.max()) + (1 if first.dim() == 2 else length)


def coordinates(positions: Tensor, shape: Sequence[int]) -> list[Tensor]:
    """The coordinates of row-major ``positions [..]`` in a grid, one tensor for each axis.

    Positions beyond the grid continue along the first axis.

    Example:
        >>> [axis.tolist() for axis in coordinates(torch.tensor([0, 3, 5]), shape=(2, 3))]
        [[0, 1, 1], [0, 0, 2]]
    """
    found = []
    for size in reversed(shape[1:]):
        found.append(positions % size)
        positions = positions // size
    return [positions, *reversed(found)]


def check_shape(shape: Sequence[int]) -> None:
    """Raise ValueError unless ``shape`` has the sizes of a grid's axes."""
    if len(shape) < 1 or min(shape) < 1:
        raise ValueError(f"shape {tuple(shape)}: each axis must have at least 1 place")
