"""Rotary positions on grids: each pair of components is rotated by one of several coordinates.

    axial      each axis has its own frequencies, base^(−i/n) for i = 0 … n − 1 of its n pairs
    sections   all axes share one list of frequencies, base^(−i/N) for i = 0 … N − 1; the first n₁
               pairs follow the first axis, the next n₂ the second, and so on

Axial: Heo et al. 2024, "Rotary Position Embedding for Vision Transformer", section 3.2. Sections,
known as M-RoPE: Wang et al. 2024, "Qwen2-VL: Enhancing Vision-Language Model's Perception of the
World at Any Resolution", section 2.1.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from heedful.attention.places import check_shape, coordinates
from heedful.attention.positions.base import RelativePositions, check_positions, check_rows
from heedful.attention.positions.rotary import rotary_angles, rotate
from heedful.attention.positions.settings import HeadSizes, PositionSettings
from heedful.basics.limits import MOST_POSITIONS


def grid_coordinates(positions: Tensor, shape: Sequence[int]) -> Tensor:
    """Coordinates ``[.., L, A]`` of row-major ``positions [.., L]`` in a grid of A axes.

    Positions beyond the grid continue along the first axis.

    Example:
        >>> grid_coordinates(torch.tensor([0, 3, 5]), shape=(2, 3)).tolist()
        [[0, 0], [1, 0], [1, 2]]
    """
    return torch.stack(coordinates(positions, shape), -1)


def multi_axis_angles(
    coordinates: Tensor, sections: Sequence[int], base: float = 10000.0, *, shared: bool = False
) -> Tensor:
    """Angles ``[.., L, N]`` of N = Σ ``sections`` pairs at integer ``coordinates [.., L, A]``.

    Args:
        coordinates: A integers for each position.
        sections: the number of pairs for each axis.
        base: the base of the frequencies.
        shared: whether the axes share one list of frequencies (M-RoPE).

    Raises:
        TypeError: the coordinates are not integers.
        ValueError: there is not one section for each axis.

    Source: Wang et al. 2024, section 2.1; Heo et al. 2024, section 3.2.

    Example:
        >>> multi_axis_angles(torch.tensor([[3, 7]]), sections=(1, 1))
        tensor([[3., 7.]], dtype=torch.float64)
    """
    check_positions(coordinates)
    if coordinates.shape[-1] != len(sections):
        raise ValueError(f"coordinates {list(coordinates.shape)}: {len(sections)} axes expected")
    axes = coordinates.unbind(-1)
    if not shared:
        each = zip(axes, sections, strict=True)
        return torch.cat([rotary_angles(axis, 2 * pairs, base) for axis, pairs in each], -1)
    whole = [
        rotary_angles(axis, 2 * sum(sections), base).split(list(sections), -1) for axis in axes
    ]
    return torch.cat([parts[number] for number, parts in enumerate(whole)], -1)


class GridRotary(RelativePositions):
    """Rotates the queries and keys of a grid by their coordinates: row and column, or more axes.

    Position p of a sequence is the p-th place of the grid, row by row. Dot products depend only on
    the differences of rows and of columns.

    Args:
        dim: number of components that are rotated, the first ones; even.
        shape: sizes of the axes, (rows, columns) or (frames, rows, columns).
        base: the base of the frequencies.
        sections: pairs of components for each axis; by default equally many.
        shared: whether the axes share one list of frequencies (M-RoPE).
        interleaved: pairs are neighbours; otherwise the two halves.

    Raises:
        ValueError: ``dim`` is odd or cannot be divided among the axes, a size is below 1, or
            ``sections`` do not add up to ``dim / 2``.

    Source: Heo et al. 2024, section 3.2; Wang et al. 2024, section 2.1.

    Example:
        >>> grid, x = GridRotary(4, shape=(2, 3)), torch.ones(1, 4)
        >>> one, two = (grid.turn(x, torch.tensor([place])) for place in (0, 4))  # [L, D]
        >>> other = [grid.turn(x, torch.tensor([place])) for place in (1, 5)]  # a column further
        >>> bool((one @ two.T).allclose(other[0] @ other[1].T))
        True
    """

    class Settings(PositionSettings):
        """The table of a recipe."""

        relative: ClassVar[bool] = True
        name: Literal["grid-rotary"] = "grid-rotary"
        shape: tuple[Annotated[int, Field(ge=1, le=MOST_POSITIONS)], ...] = (16, 16)
        """Sizes of the grid's axes, such as rows and columns."""
        base: float = Field(10_000.0, gt=0, allow_inf_nan=False)
        """The base of the angles."""
        sections: tuple[int, ...] | None = None
        """Pairs of components for each axis; equally many by default."""
        shared: bool = False
        """Whether the axes share one list of frequencies (M-RoPE)."""

        def build_relative(self, sizes: HeadSizes) -> "GridRotary":
            return GridRotary(
                sizes.width, self.shape, self.base, sections=self.sections, shared=self.shared
            )

    def __init__(
        self,
        dim: int,
        shape: Sequence[int],
        base: float = 10000.0,
        *,
        sections: Sequence[int] | None = None,
        shared: bool = False,
        interleaved: bool = False,
    ) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ValueError(f"dim must be even and at least 2, not {dim}")
        check_shape(shape)
        if base <= 0:
            raise ValueError(f"base must be positive, not {base}")
        if sections is None:
            if dim // 2 % len(shape):
                raise ValueError(
                    f"{dim // 2} pairs of dim {dim} cannot be divided equally among {len(shape)} "
                    "axes: set sections"
                )
            sections = [dim // 2 // len(shape)] * len(shape)
        if len(sections) != len(shape) or min(sections) < 0 or sum(sections) != dim // 2:
            raise ValueError(
                f"sections {tuple(sections)} must be {len(shape)} numbers that add up to {dim // 2}"
            )
        self.dim, self.shape, self.base = dim, tuple(shape), float(base)
        self.sections, self.shared, self.interleaved = tuple(sections), shared, interleaved

    def turn(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """Rotate ``vectors [.., L, D]``, D at least ``dim``, at integer ``positions [.., L]``.

        Raises:
            TypeError: the positions are not integers.
            ValueError: the vectors are narrower than ``dim``, or their number differs from the
                positions.
        """
        check_positions(positions)
        check_rows(vectors, positions)
        if vectors.shape[-1] < self.dim:
            raise ValueError(f"vectors {list(vectors.shape)} are narrower than dim {self.dim}")
        places = grid_coordinates(positions, self.shape)
        angles = multi_axis_angles(places, self.sections, self.base, shared=self.shared)
        return rotate(vectors, angles, self.interleaved)

    def extra_repr(self) -> str:
        return f"{self.dim}, shape={self.shape}, sections={self.sections}, shared={self.shared}"
