"""The tree of tokens of a beam search; steps that are no longer needed are dropped.

Shapes: C choices of a step.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class _Step:
    """The choices of one step; they stay on their device until one is read."""

    def __init__(self, parents: Tensor, tokens: Tensor, values: Tensor) -> None:
        self._parts = parents, tokens, values
        self._read: tuple[NDArray[np.generic], ...] | None = None

    def at(self, place: int) -> tuple[int, int, float]:
        """The parent, token and log-probability of a choice."""
        if self._read is None:
            self._read = tuple(part.cpu().numpy() for part in self._parts)
        parents, tokens, values = self._read
        return int(parents[place]), int(tokens[place]), float(values[place])


class BeamTree:
    """A tree of tokens, numbered across steps. The parent is a token of the step before, or −1."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._firsts: list[int] = []
        self.size = 0
        """Number of tokens added so far, which is the number of the next token."""

    def __len__(self) -> int:
        """Number of steps that are kept."""
        return len(self._steps)

    def add(self, parents: Tensor, tokens: Tensor, values: Tensor) -> None:
        """Add a step: the parent, token and log-probability of each choice ``[C]``."""
        self._steps.append(_Step(parents, tokens, values))
        self._firsts.append(self.size)
        self.size += len(tokens)

    def keep(self, steps: int) -> None:
        """Remove all but the last ``steps`` steps."""
        gone = len(self._steps) - steps
        if gone > 0:
            del self._steps[:gone], self._firsts[:gone]

    def path(self, number: int) -> tuple[list[int], list[float]]:
        """The tokens up to and including a choice, and their log-probabilities."""
        tokens, values = [], []
        step = bisect_right(self._firsts, number) - 1
        while number >= 0:
            number, token, value = self._steps[step].at(number - self._firsts[step])
            tokens.append(token)
            values.append(value)
            step -= 1
        return tokens[::-1], values[::-1]
