"""What all problems of the algorithm task have in common.

Shapes: B rows, T steps, I width of the inputs, O width of the outputs. A batch has one size n.
"""

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from heedful.basics.settings import Settings

MOST_SIZE = 1000
Array = NDArray[Any]


class Drawn(NamedTuple):
    """Examples of one size."""

    inputs: Array
    """``[B, T, I]``, float32."""
    targets: Array
    """``[B, T, O]``, uint8; 0 at steps that are not answered."""
    answered: Array
    """``[T]``, bool: the steps whose outputs count."""


class Widths(NamedTuple):
    """Widths of inputs and outputs."""

    inputs: int
    outputs: int


class Problem(Settings):
    """Base of all problems: the table ``[data]`` of a recipe."""

    sizes: tuple[int, int]
    """The least and the largest size of the examples, drawn uniformly."""
    validation: int = Field(256, ge=1, le=100_000)
    """Number of validation examples."""
    test: int = Field(1000, ge=1, le=1_000_000)
    """Number of test examples."""
    kind: str
    size_name: ClassVar[str]
    """What the size counts, in the plural."""
    least: ClassVar[int] = 1
    """The smallest size."""

    @model_validator(mode="after")
    def _sizes_are_possible(self) -> Self:
        least, largest = self.sizes
        if least > largest:
            raise ValueError(f"sizes [{least}, {largest}]: the first must not exceed the second")
        for size in self.sizes:
            if problem := self.refused(size):
                raise ValueError(problem)
        return self

    def refused(self, size: int) -> str:
        """Why there is no example of a size; empty if there is."""
        if not self.least <= size <= MOST_SIZE:
            return f"{size} {self.size_name}: give {self.least} to {MOST_SIZE}"
        return ""

    @property
    def widths(self) -> Widths:
        """Widths of inputs and outputs."""
        raise NotImplementedError

    def steps(self, size: int) -> int:
        """T of an example of a size; the most, if there are several."""
        raise NotImplementedError

    def draw(self, rng: np.random.Generator, rows: int, size: int) -> Drawn:
        """Examples of a size."""
        raise NotImplementedError

    def bound(self, drawn: Drawn) -> float | None:
        """The least bits per sequence that any model can reach on average; None if 0."""
        return None

    # What loop and commands ask of any data of a run

    @property
    def is_validated(self) -> bool:
        """Validation examples are always drawn."""
        return True

    @property
    def is_tested(self) -> bool:
        """Test examples are always drawn."""
        return True

    @property
    def files(self) -> dict[str, list[str]]:
        """No part is read from files."""
        return {}


def random_bits(rng: np.random.Generator, *shape: int) -> Array:
    """Random bits, 0 or 1 with equal probability."""
    return rng.integers(0, 2, shape, dtype=np.uint8)


def empty_arrays(rows: int, steps: int, widths: Widths) -> tuple[Array, Array, Array]:
    """Inputs, targets and answered steps of :class:`Drawn`, all of which are 0."""
    return (
        np.zeros((rows, steps, widths.inputs), np.float32),
        np.zeros((rows, steps, widths.outputs), np.uint8),
        np.zeros(steps, bool),
    )
