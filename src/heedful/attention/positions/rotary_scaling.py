"""Frequencies of rotary positions for texts longer than those of training.

A scaling changes each frequency θ according to its wavelength λ = 2π/θ, compared with the length L
of the training texts. Fast pairs, which turn many times within L, keep their frequency; slow pairs
are interpolated, θ/s, as by positions divided by s.

    YaRN     θ' = (1 − γ) θ/s + γ θ,   γ falls linearly over the pairs from β_fast turns to β_slow
    Llama 3  θ' = (1 − γ) θ/s + γ θ,   γ = (L/λ − α) / (β − α), cut to [0, 1]

YaRN: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models",
section 3.2 (frequencies; the ramp over the pairs is that of the authors' code) and 3.3 (the
factor 0.1 ln(s) + 1 on queries and keys). Llama 3: Llama Team 2024, "The Llama 3 Herd of Models",
and its published code (3.1).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from heedful.basics.limits import MOST_POSITIONS
from heedful.basics.parts import Parts, PartSettings


class RotaryScaling:
    """Base of scalings; a subclass overrides :meth:`scaled`.

    Example:
        >>> class Halved(RotaryScaling):
        ...     def scaled(self, frequencies, dim, base):
        ...         return frequencies / 2
        >>> Halved().scaled(torch.tensor([1.0]), 2, 10000.0)  # [dim / 2]
        tensor([0.5000])
    """

    @property
    def magnitude(self) -> float:
        """The factor on rotated queries and keys."""
        return 1.0

    def scaled(self, frequencies: Tensor, dim: int, base: float) -> Tensor:
        """The changed frequencies ``[dim / 2]`` of ``frequencies [dim / 2]``, in radians."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `scaled`")


def _check(factor: float, length: int, slow: float, fast: float) -> None:
    if not 1 <= factor < math.inf:
        raise ValueError(f"factor must be at least 1 and finite, not {factor}")
    if length < 1:
        raise ValueError(f"length must be at least 1, not {length}")
    if not 0 < slow < fast < math.inf:
        raise ValueError(f"slow {slow} must be above 0 and below fast {fast}")


class ScalingSettings(PartSettings):
    """Base of the settings of scalings; a table of this type is that of the scaling it names.

    Example:
        >>> ScalingSettings.model_validate({"name": "yarn", "factor": 4}).build().factor
        4.0
    """

    parts: ClassVar[Parts["ScalingSettings"]] = Parts("rotary scaling")
    factor: float = Field(2.0, ge=1, allow_inf_nan=False)
    """s, how many times longer texts are than those of training."""
    length: int = Field(512, ge=1, le=MOST_POSITIONS)
    """L, the length of the training texts."""

    def build(self) -> RotaryScaling:
        """The scaling."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `build`")


@dataclass(frozen=True)
class Yarn(RotaryScaling):
    """YaRN's scaling by ``factor``.

    Args:
        factor: s, how many times longer texts are; at least 1.
        length: L, the length of the training texts.
        fast: β_fast: pairs with more turns within L keep their frequency.
        slow: β_slow: pairs with fewer turns are interpolated.
        attention_factor: factor on rotated queries and keys; default: 0.1 ln(s) + 1.

    Raises:
        ValueError: a number is out of range.

    Source: Peng et al. 2023, sections 3.2 and 3.3.

    Example:
        >>> Yarn(4.0, length=32).scaled(torch.tensor([1.0, 0.01]), 4, 10000.0)  # [dim / 2]
        tensor([1.0000, 0.0025])
    """

    class Settings(ScalingSettings):
        """The table of a recipe."""

        name: Literal["yarn"] = "yarn"

        def build(self) -> "Yarn":
            return Yarn(self.factor, self.length)

    factor: float
    length: int
    fast: float = 32.0
    slow: float = 1.0
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        _check(self.factor, self.length, self.slow, self.fast)
        if self.attention_factor is not None and not 0 < self.attention_factor < math.inf:
            raise ValueError(
                f"attention_factor must be above 0 and finite, not {self.attention_factor}"
            )

    @property
    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0

    def scaled(self, frequencies: Tensor, dim: int, base: float) -> Tensor:
        start = max(math.floor(self._pair(self.fast, dim, base)), 0)
        stop = min(math.ceil(self._pair(self.slow, dim, base)), dim - 1)
        pairs = torch.arange(dim // 2, dtype=frequencies.dtype, device=frequencies.device)
        ramp = ((pairs - start) / (stop - start or 0.001)).clamp(0.0, 1.0)
        return frequencies * (1 - ramp) + frequencies / self.factor * ramp

    def _pair(self, turns: float, dim: int, base: float) -> float:
        """The pair, counted from 0, that turns this often within the training texts."""
        return dim * math.log(self.length / (turns * 2 * math.pi)) / (2 * math.log(base))


@dataclass(frozen=True)
class Llama3(RotaryScaling):
    """Llama 3.1's scaling by ``factor``.

    Args:
        factor: s; at least 1.
        length: L, the length of the training texts.
        fast: β: wavelengths below L/β keep their frequency.
        slow: α: wavelengths above L/α are interpolated.

    Raises:
        ValueError: a number is out of range.

    Source: Llama Team 2024.

    Example:
        >>> Llama3(5.0, length=64).scaled(torch.tensor([1.0, 0.01]), 4, 10000.0)  # [dim / 2]
        tensor([1.0000, 0.0020])
    """

    class Settings(ScalingSettings):
        """The table of a recipe."""

        name: Literal["llama3"] = "llama3"
        fast: float = Field(4.0, gt=0, allow_inf_nan=False)
        """β: wavelengths below length/β keep their frequency."""
        slow: float = Field(1.0, gt=0, allow_inf_nan=False)
        """α: wavelengths above length/α are interpolated; below ``fast``."""

        @model_validator(mode="after")
        def _in_order(self) -> Self:
            _check(self.factor, self.length, self.slow, self.fast)
            return self

        def build(self) -> "Llama3":
            return Llama3(self.factor, self.length, self.fast, self.slow)

    factor: float
    length: int
    fast: float = 4.0
    slow: float = 1.0

    def __post_init__(self) -> None:
        _check(self.factor, self.length, self.slow, self.fast)

    def scaled(self, frequencies: Tensor, dim: int, base: float) -> Tensor:
        turns = self.length * frequencies / (2 * math.pi)  # L/λ
        kept = ((turns - self.slow) / (self.fast - self.slow)).clamp(0.0, 1.0)
        return frequencies * kept + frequencies / self.factor * (1 - kept)


ScalingSettings.parts.add("yarn", Yarn.Settings, ScalingSettings)
ScalingSettings.parts.add("llama3", Llama3.Settings, ScalingSettings)
