"""Masks for grids, such as pictures and videos: position p is the p-th place, row by row.

Queries and keys are the places of one grid. Shapes: Q queries, K keys.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.attention.masks.algebra import Grid, Mask
from heedful.attention.places import check_shape, coordinates


class Axial(Mask):
    """See :func:`axial`."""

    def __init__(self, shape: Sequence[int], axis: int) -> None:
        self.shape, self.axis = tuple(shape), axis

    def rule(self, grid: Grid) -> Tensor:
        query, key = (coordinates(part, self.shape) for part in (grid.query, grid.key))
        allowed = grid.query * 0 == grid.key * 0
        for axis, (of_query, of_key) in enumerate(zip(query, key, strict=True)):
            if axis != self.axis:
                allowed = allowed & (of_query == of_key)
        return allowed


class Neighbourhood(Mask):
    """See :func:`neighbourhood`."""

    def __init__(self, shape: Sequence[int], radius: int, shifted: bool) -> None:
        self.shape, self.radius, self.shifted = tuple(shape), radius, shifted

    def rule(self, grid: Grid) -> Tensor:
        query, key = (coordinates(part, self.shape) for part in (grid.query, grid.key))
        allowed = grid.query * 0 == grid.key * 0
        for size, of_query, of_key in zip(self.shape, query, key, strict=True):
            middle = of_query
            if self.shifted and size > 2 * self.radius:
                middle = torch.clamp(of_query, self.radius, size - 1 - self.radius)
            elif self.shifted:
                continue  # The neighbourhood is the whole axis.
            allowed = allowed & ((of_key - middle).abs() <= self.radius)
        return allowed


def axial(shape: Sequence[int], axis: int) -> Mask:
    """A query may attend to the keys of its own line along ``axis`` of a grid.

    ``axial(shape, 0) | axial(shape, 1)`` is its row and its column.
    :class:`~heedful.attention.AxialAttention` computes one line at a time instead of a mask.

    Args:
        shape: sizes of the axes, such as (rows, columns).
        axis: 1 for the row of a picture, along which the column changes; 0 for its column.

    Raises:
        ValueError: a size is below 1, or there is no such axis.

    Source: Ho et al. 2019, "Axial Attention in Multidimensional Transformers", section 3.1; row and
    column: Huang et al. 2019, "CCNet: Criss-Cross Attention for Semantic Segmentation".

    Example:
        >>> axial((2, 3), axis=1).dense((6, 6)).long()[1].tolist()  # [Q, K]
        [1, 1, 1, 0, 0, 0]
        >>> axial((2, 3), axis=0).dense((6, 6)).long()[1].tolist()
        [0, 1, 0, 0, 1, 0]
    """
    check_shape(shape)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis {axis}: shape {tuple(shape)} has {len(shape)} axes")
    return Axial(shape, axis % len(shape))


def neighbourhood(shape: Sequence[int], radius: int, *, shifted: bool = False) -> Mask:
    """A query may attend to the keys within ``radius`` places of it along each axis of a grid.

    Args:
        shape: sizes of the axes, such as (rows, columns).
        radius: 0 or more.
        shifted: whether neighbourhoods at a border are moved inwards, so that all of them have
            2 · radius + 1 places along each axis, as far as there are so many.

    Raises:
        ValueError: a size is below 1, or the radius is negative.

    Source: Parmar et al. 2018, "Image Transformer", section 4.2 (local attention in two
    dimensions); shifted: Hassani et al. 2023, "Neighborhood Attention Transformer", section 3.1.

    Example:
        >>> neighbourhood((3, 3), radius=1).dense((9, 9)).long()[0].tolist()  # [Q, K]
        [1, 1, 0, 1, 1, 0, 0, 0, 0]
    """
    check_shape(shape)
    if radius < 0:
        raise ValueError(f"radius must be at least 0, not {radius}")
    return Neighbourhood(shape, radius, shifted)
