"""The problems of Graves et al. 2014, "Neural Turing Machines", section 4: copy, repeat copy,
associative recall, dynamic n-grams and priority sort.

Shapes: B rows, T steps, I width of the inputs, O width of the outputs. A batch has one size n.
"""

import math
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from heedful.tasks.algorithm.problem import (
    MOST_SIZE,
    Array,
    Drawn,
    Problem,
    Widths,
    empty_arrays,
    random_bits,
)


class Copy(Problem):
    """Random vectors, a delimiter, and then the vectors again.

    Inputs: the bits and a channel for the delimiter. T = 2 n + 1.
    """

    kind: Literal["copy"] = "copy"
    bits: int = Field(8, ge=1, le=64)
    sizes: tuple[int, int] = (1, 20)
    size_name = "vectors"

    @property
    def widths(self) -> Widths:
        return Widths(self.bits + 1, self.bits)

    def steps(self, size: int) -> int:
        return 2 * size + 1

    def draw(self, rng: np.random.Generator, rows: int, size: int) -> Drawn:
        inputs, targets, answered = empty_arrays(rows, self.steps(size), self.widths)
        vectors = random_bits(rng, rows, size, self.bits)
        inputs[:, :size, : self.bits] = vectors
        inputs[:, size, -1] = 1
        targets[:, size + 1 :] = vectors
        answered[size + 1 :] = True
        return Drawn(inputs, targets, answered)


class RepeatCopy(Problem):
    """Random vectors and a number r; then r copies of the vectors, and an end marker.

    Inputs: the bits, a channel for the delimiter, and at the same step r, scaled to mean 0 and
    variance 1 of the numbers in ``repeats``. Outputs: the bits and a channel for the end marker.
    T = n + 1 + n r + 1. All rows of a batch have the same r.
    """

    kind: Literal["repeat-copy"] = "repeat-copy"
    bits: int = Field(8, ge=1, le=64)
    sizes: tuple[int, int] = (1, 10)
    repeats: tuple[int, int] = (1, 10)
    """The least and the largest number of copies."""
    scaled_by: tuple[int, int] = (1, 10)
    """The range of repeats whose mean and deviation scale the number r."""
    size_name = "vectors"

    @model_validator(mode="after")
    def _repeats_are_possible(self) -> Self:
        least, largest = self.repeats
        if not 1 <= least <= largest <= MOST_SIZE:
            raise ValueError(
                f"repeats [{least}, {largest}]: give two ascending numbers from 1 to {MOST_SIZE}"
            )
        return self

    @property
    def widths(self) -> Widths:
        return Widths(self.bits + 2, self.bits + 1)

    def steps(self, size: int) -> int:
        return size + 1 + size * self.repeats[1] + 1

    def draw(self, rng: np.random.Generator, rows: int, size: int) -> Drawn:
        count = int(rng.integers(self.repeats[0], self.repeats[1] + 1))
        inputs, targets, answered = empty_arrays(rows, size + 1 + size * count + 1, self.widths)
        vectors = random_bits(rng, rows, size, self.bits)
        inputs[:, :size, : self.bits] = vectors
        inputs[:, size, -2] = 1
        inputs[:, size, -1] = self._scaled(count)
        targets[:, size + 1 : -1, : self.bits] = np.tile(vectors, (1, count, 1))
        targets[:, -1, -1] = 1
        answered[size + 1 :] = True
        return Drawn(inputs, targets, answered)

    def _scaled(self, count: int) -> float:
        low, high = self.scaled_by
        deviation = max(math.sqrt(((high - low + 1) ** 2 - 1) / 12), 0.5)
        return (count - (low + high) / 2) / deviation


class AssociativeRecall(Problem):
    """Items of random vectors; then one of them is asked, and the next item is the answer.

    A delimiter precedes each item; the question is between two delimiters of another kind.
    Inputs: the bits and two channels for the delimiters. T = (n + 2) (v + 1), with v
    vectors an item.
    """

    kind: Literal["associative-recall"] = "associative-recall"
    bits: int = Field(6, ge=1, le=64)
    vectors: int = Field(3, ge=1, le=64)
    """Vectors of an item."""
    sizes: tuple[int, int] = (2, 6)
    size_name = "items"
    least = 2

    @property
    def widths(self) -> Widths:
        return Widths(self.bits + 2, self.bits)

    def steps(self, size: int) -> int:
        return (size + 2) * (self.vectors + 1)

    def draw(self, rng: np.random.Generator, rows: int, size: int) -> Drawn:
        long, asked_at = self.vectors, size * (self.vectors + 1)
        inputs, targets, answered = empty_arrays(rows, self.steps(size), self.widths)
        items = random_bits(rng, rows, size, long, self.bits)
        every, asked = np.arange(rows), rng.integers(0, size - 1, rows)
        for place in range(size):
            first = place * (long + 1)
            inputs[:, first, -2] = 1
            inputs[:, first + 1 : first + 1 + long, : self.bits] = items[:, place]
        inputs[:, asked_at, -1] = inputs[:, asked_at + long + 1, -1] = 1
        inputs[:, asked_at + 1 : asked_at + 1 + long, : self.bits] = items[every, asked]
        targets[:, -long:] = items[every, asked + 1]
        answered[-long:] = True
        return Drawn(inputs, targets, answered)


class NGrams(Problem):
    """Bits whose probabilities depend on the bits before them; each next bit is asked.

    The probability of a 1 after each context is drawn from Beta(1/2, 1/2) for every example. The
    first ``context`` bits are 0 or 1 with equal probability, and are not asked. T = n − 1.
    """

    kind: Literal["n-grams"] = "n-grams"
    context: int = Field(5, ge=1, le=16)
    """Bits that the next one depends on: n − 1 of the n-grams."""
    sizes: tuple[int, int] = (200, 200)
    size_name = "bits"
    least = 2

    def refused(self, size: int) -> str:
        if size > self.context:
            return super().refused(size)
        return f"{size} bits: give more than {self.context}, the context"

    @property
    def widths(self) -> Widths:
        return Widths(1, 1)

    def steps(self, size: int) -> int:
        return size - 1

    def draw(self, rng: np.random.Generator, rows: int, size: int) -> Drawn:
        table = rng.beta(0.5, 0.5, (rows, 2**self.context))
        chance, bits = rng.random((rows, size)), random_bits(rng, rows, size)
        every = np.arange(rows)
        contexts = contexts_of(bits, self.context)
        for place in range(self.context, size):
            context = contexts(place)
            bits[:, place] = chance[:, place] < table[every, context]
        answered = np.arange(1, size) >= self.context
        targets = bits[:, 1:, None] * answered[:, None]
        return Drawn(bits[:, :-1, None].astype(np.float32), targets.astype(np.uint8), answered)

    def bound(self, drawn: Drawn) -> float | None:
        asked = drawn.targets[:, self.context - 1 :, 0]
        bits = np.concatenate([drawn.inputs[:, :, 0].astype(np.uint8), asked[:, -1:]], 1)
        best = self.bayes(bits)
        return float(-np.log2(np.where(asked, best, 1 - best)).sum(1).mean())

    def bayes(self, bits: Array) -> Array:
        """The best probability of a 1 for each bit that is asked: ``[B, n − context]``.

        ``(N₁ + 1/2) / (N₀ + N₁ + 1)``, with the numbers N of zeros and ones that followed the same
        context earlier in the sequence.

        Args:
            bits: ``[B, n]``.

        Source: Graves et al. 2014, equation 10.
        """
        rows, size = bits.shape
        counts = np.zeros((rows, 2**self.context, 2))
        every, contexts, found = np.arange(rows), contexts_of(bits, self.context), []
        for place in range(self.context, size):
            context = contexts(place)
            zeros, ones = counts[every, context].T
            found.append((ones + 0.5) / (zeros + ones + 1))
            counts[every, context, bits[:, place]] += 1
        return np.stack(found, 1)


def contexts_of(bits: Array, context: int) -> Any:
    """A function of a place: the number ``[B]`` that the ``context`` bits before it write."""
    powers = 2 ** np.arange(context)
    return lambda place: bits[:, place - context : place].astype(np.int64) @ powers


class PrioritySort(Problem):
    """Random vectors, each with a priority; then those of the highest priority, the highest first.

    Inputs: the bits, the priority, uniform in [−1, 1], and a channel for the delimiter. The answer
    has ``share`` of the n vectors, rounded. T = n + 1 + answers.
    """

    kind: Literal["priority-sort"] = "priority-sort"
    bits: int = Field(8, ge=1, le=64)
    sizes: tuple[int, int] = (20, 20)
    share: float = Field(0.8, gt=0, le=1)
    """The share of the vectors that is answered."""
    size_name = "vectors"

    @property
    def widths(self) -> Widths:
        return Widths(self.bits + 2, self.bits)

    def answers(self, size: int) -> int:
        """How many of the vectors are answered."""
        return max(1, round(self.share * size))

    def steps(self, size: int) -> int:
        return size + 1 + self.answers(size)

    def draw(self, rng: np.random.Generator, rows: int, size: int) -> Drawn:
        inputs, targets, answered = empty_arrays(rows, self.steps(size), self.widths)
        vectors = random_bits(rng, rows, size, self.bits)
        priority = rng.uniform(-1, 1, (rows, size)).astype(np.float32)
        inputs[:, :size, : self.bits] = vectors
        inputs[:, :size, -2] = priority
        inputs[:, size, -1] = 1
        order = np.argsort(-priority, 1, kind="stable")[:, : self.answers(size), None]
        targets[:, size + 1 :] = np.take_along_axis(vectors, order, 1)
        answered[size + 1 :] = True
        return Drawn(inputs, targets, answered)
