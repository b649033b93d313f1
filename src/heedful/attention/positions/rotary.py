"""Rotary positions: queries and keys are rotated by angles that grow with their position.

    f(x, m) = R_m x,   R_m rotates pair i of components of x by m θ_i,   θ_i = base^(−2(i − 1)/d)
    f(q, m)ᵀ f(k, n) = qᵀ R_(n − m) k

Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.2,
equations 14 to 16. There the pairs are neighbours (x₁ x₂)(x₃ x₄)…; Llama and similar models pair
the two halves, (x₁ x_(d/2+1))(x₂ x_(d/2+2))…, the same up to the order of the components.

For texts longer than those of training, divide positions by a scale (Chen et al. 2023, "Extending
Context Window of Large Language Models via Positional Interpolation", equation 4), or use a larger
base (:func:`ntk_base`), or a scaling that treats fast and slow pairs differently
(:mod:`~heedful.attention.positions.rotary_scaling`).
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from heedful.attention.positions.base import (
    RelativePositions,
    check_positions,
    check_rows,
    sum_type,
)
from heedful.attention.positions.rotary_scaling import RotaryScaling, ScalingSettings, Yarn
from heedful.attention.positions.settings import HeadSizes, PositionSettings


def rotary_angles(
    positions: Tensor,
    dim: int,
    base: float = 10000.0,
    length_scale: float = 1.0,
    scaling: RotaryScaling | None = None,
) -> Tensor:
    """``m θ_i / length_scale`` in radians, ``[.., dim / 2]`` for integer ``positions [..]``.

    With a scaling, the frequencies θ_i are those that it returns.

    In float64 if the device supports it: at position 100,000, float32 is off by up to 1/250.

    Example:
        >>> rotary_angles(torch.tensor([0, 100]), 4).tolist()
        [[0.0, 0.0], [100.0, 1.0]]
    """
    kind = torch.float32 if positions.device.type == "mps" else torch.float64
    exponents = torch.arange(0, dim, 2, dtype=kind, device=positions.device) / -dim
    frequencies = base**exponents / length_scale
    if scaling is not None:
        frequencies = scaling.scaled(frequencies, dim, base)
    return positions.unsqueeze(-1).to(kind) * frequencies


def rotate(vectors: Tensor, angles: Tensor, interleaved: bool = False) -> Tensor:
    """Rotate the first 2R components of ``vectors [.., L, D]``, in pairs, by ``angles [L, R]``.

    Computed at least in float32; the result has the vectors' type.

    Example:
        >>> quarter = torch.tensor([[torch.pi / 2]])
        >>> rotate(torch.tensor([[1.0, 0.0, 5.0]]), quarter).round(decimals=3) + 0.0
        tensor([[0., 1., 5.]])
    """
    pairs = angles.shape[-1]
    kind = sum_type(vectors.dtype)
    cos, sin = angles.cos().to(kind), angles.sin().to(kind)
    turned, kept = vectors[..., : 2 * pairs].to(kind), vectors[..., 2 * pairs :]
    if interleaved:
        x, y = turned.reshape(*turned.shape[:-1], pairs, 2).unbind(-1)
    else:
        x, y = turned.chunk(2, dim=-1)
    both = (x * cos - y * sin, x * sin + y * cos)
    done = torch.stack(both, dim=-1).flatten(-2) if interleaved else torch.cat(both, dim=-1)
    return torch.cat([done.to(vectors.dtype), kept], dim=-1)


def ntk_base(dim: int, scale: float, base: float = 10000.0) -> float:
    """The base that keeps the slowest pair within its angles in ``scale`` times longer texts.

    The fastest pair keeps its frequency, unlike with ``length_scale``. Source: Peng et al. 2023,
    "YaRN: Efficient Context Window Extension of Large Language Models", section 3.1.

    Args:
        dim: number of rotated components, at least 4.
        scale: factor by which texts are longer, positive.
        base: the base in training.

    Raises:
        ValueError: ``dim`` is below 4, or ``scale`` or ``base`` is not positive.

    Example:
        >>> round(ntk_base(64, scale=2.0))
        20452
    """
    if dim < 4 or scale <= 0 or base <= 0:
        raise ValueError(
            f"dim {dim} must be at least 4, scale {scale} and base {base} must be positive"
        )
    return float(base * scale ** (dim / (dim - 2)))


class Rotary(RelativePositions):
    """Rotates queries and keys by their positions, so that dot products depend only on offsets.

    It has no parameters or buffers; angles are computed on demand, for any position.

    Args:
        dim: number of components of each query and key that are rotated, the first ones; even.
        base: the base of the frequencies θ_i.
        length_scale: positions are divided by it; 4 maps texts four times as long as those of
            training to the angles of training.
        interleaved: pairs are neighbours, as in the paper; otherwise the two halves, as in Llama.
        scaling: changes the frequencies for longer texts, instead of ``length_scale``.

    Raises:
        ValueError: ``dim`` is odd or not positive, ``base`` or ``length_scale`` is not positive,
            there are a ``length_scale`` and a scaling, or ``base`` is not above 1 with YaRN.

    Source: Su et al. 2021, section 3.2.2, equation 15; Chen et al. 2023, equation 4.

    Example:
        >>> rotary, x = Rotary(4), torch.ones(1, 4)
        >>> near, far = (rotary.turn(x, torch.tensor([place])) for place in (3, 1003))
        >>> bool((near @ rotary.turn(x, torch.tensor([5])).T).allclose(
        ...     far @ rotary.turn(x, torch.tensor([1005])).T))
        True
    """

    class Settings(PositionSettings):
        """The table of a recipe."""

        relative: ClassVar[bool] = True
        name: Literal["rotary"] = "rotary"
        base: float = Field(10_000.0, gt=0, allow_inf_nan=False)
        """The base of the angles."""
        length_scale: float = Field(1.0, gt=0, allow_inf_nan=False)
        """Divides positions (position interpolation)."""
        scaling: ScalingSettings | None = None
        """For texts longer than those of training."""

        def build_relative(self, sizes: HeadSizes) -> "Rotary":
            return Rotary(
                sizes.width,
                self.base,
                self.length_scale,
                scaling=None if self.scaling is None else self.scaling.build(),
            )

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        length_scale: float = 1.0,
        interleaved: bool = False,
        scaling: RotaryScaling | None = None,
    ) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ValueError(
                f"dim must be even and at least 2, not {dim}: components are rotated in pairs"
            )
        if base <= 0 or length_scale <= 0:
            raise ValueError(f"base {base} and length_scale {length_scale} must be positive")
        self.dim, self.base, self.length_scale = dim, float(base), float(length_scale)
        if scaling is not None and length_scale != 1.0:
            raise ValueError("a scaling has its own factor: use it without length_scale")
        if isinstance(scaling, Yarn) and base <= 1:
            raise ValueError(f"base must be above 1 with the scaling YaRN, not {base}")
        self.interleaved, self.scaling = interleaved, scaling

    def turn(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """Rotate ``vectors [.., L, D]``, D at least ``dim``, at integer ``positions [L]``.

        Raises:
            TypeError: the positions are not integers.
            ValueError: the vectors are narrower than ``dim``, or their number differs from the
                positions.
        """
        check_positions(positions)
        check_rows(vectors, positions)
        if vectors.shape[-1] < self.dim:
            raise ValueError(
                f"vectors have shape {list(vectors.shape)}: expected [.., L, D], "
                f"D at least {self.dim}, the components to rotate"
            )
        angles = rotary_angles(positions, self.dim, self.base, self.length_scale, self.scaling)
        turned = rotate(vectors, angles, self.interleaved)
        if self.scaling is None or self.scaling.magnitude == 1.0:
            return turned
        longer = turned[..., : self.dim] * self.scaling.magnitude
        return torch.cat([longer, turned[..., self.dim :]], -1)

    def extra_repr(self) -> str:
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        return (
            f"{self.dim}, base={self.base:g}, length_scale={self.length_scale:g}, "
            f"interleaved={self.interleaved}{scaling}"
        )
