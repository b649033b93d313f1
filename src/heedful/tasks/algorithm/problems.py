"""Problems that are solved by an algorithm, whose examples are drawn at random.

An example is a sequence of input vectors, and bits that the model must output at some of the steps.
Graves et al. 2014, "Neural Turing Machines", section 4: copy, repeat copy, associative recall,
dynamic n-grams and priority sort. Graves et al. 2016, "Hybrid computing using a neural network with
dynamic external memory": shortest paths of random graphs, here small ones.

Shapes: B rows, T steps, I width of the inputs, O width of the outputs. A batch has one size n.
"""

import math
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

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


def _bits(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(0, 2, shape, dtype=np.uint8)


def _empty(rows: int, steps: int, widths: Widths) -> tuple[Array, Array, Array]:
    return (
        np.zeros((rows, steps, widths.inputs), np.float32),
        np.zeros((rows, steps, widths.outputs), np.uint8),
        np.zeros(steps, bool),
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
        inputs, targets, answered = _empty(rows, self.steps(size), self.widths)
        vectors = _bits(rng, rows, size, self.bits)
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
        inputs, targets, answered = _empty(rows, size + 1 + size * count + 1, self.widths)
        vectors = _bits(rng, rows, size, self.bits)
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
        inputs, targets, answered = _empty(rows, self.steps(size), self.widths)
        items = _bits(rng, rows, size, long, self.bits)
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
        chance, bits = rng.random((rows, size)), _bits(rng, rows, size)
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
        inputs, targets, answered = _empty(rows, self.steps(size), self.widths)
        vectors = _bits(rng, rows, size, self.bits)
        priority = rng.uniform(-1, 1, (rows, size)).astype(np.float32)
        inputs[:, :size, : self.bits] = vectors
        inputs[:, :size, -2] = priority
        inputs[:, size, -1] = 1
        order = np.argsort(-priority, 1, kind="stable")[:, : self.answers(size), None]
        targets[:, size + 1 :] = np.take_along_axis(vectors, order, 1)
        answered[size + 1 :] = True
        return Drawn(inputs, targets, answered)


class ShortestPath(Problem):
    """The edges of a directed graph, two of its nodes, and then the shortest path between them.

    One edge a step, then the question, steps without input to think, and one node of the path a
    step, without the first. Paths with n edges are drawn such that no other path is as short.
    Inputs: the nodes from and to as one-hot vectors, and channels for the question and the answer.
    T = edges + 1 + thinking + n.
    """

    kind: Literal["shortest-path"] = "shortest-path"
    nodes: int = Field(8, ge=3, le=64)
    edges: int = Field(12, ge=2, le=1000)
    thinking: int = Field(4, ge=0, le=1000)
    """Steps between the question and the answer."""
    sizes: tuple[int, int] = (1, 3)
    size_name = "edges of the path"

    def refused(self, size: int) -> str:
        if problem := super().refused(size):
            return problem
        if size > self.nodes - 1 or size > self.edges:
            return f"a path of {size} edges needs more nodes than {size}, and as many edges"
        # Edges back along the path, to its first node and from its last one are always possible.
        most = size * (size + 3) // 2 + 2 * (self.nodes - size - 1)
        most = most if size > 1 else self.nodes * (self.nodes - 1)
        if self.edges > most:
            return f"{self.edges} edges are too many for paths of {size}: give at most {most}"
        return ""

    @property
    def widths(self) -> Widths:
        return Widths(2 * self.nodes + 2, self.nodes)

    def steps(self, size: int) -> int:
        return self.edges + 1 + self.thinking + size

    def draw(self, rng: np.random.Generator, rows: int, size: int) -> Drawn:
        count, first = self.edges, self.edges + 1 + self.thinking
        inputs, targets, answered = _empty(rows, self.steps(size), self.widths)
        for row in range(rows):
            edges, path = self._graph(rng, size)
            at = np.arange(count)
            inputs[row, at, edges[:, 0]] = inputs[row, at, self.nodes + edges[:, 1]] = 1
            inputs[row, count, [path[0], self.nodes + path[-1]]] = 1
            targets[row, first + np.arange(size), path[1:]] = 1
        inputs[:, count, -2] = inputs[:, first:, -1] = 1
        answered[first:] = True
        return Drawn(inputs, targets, answered)

    def _graph(self, rng: np.random.Generator, size: int) -> tuple[Array, Array]:
        """Edges ``[E, 2]`` in random order, and a path of ``size`` edges, the only shortest one.

        A random path is drawn first, and then edges that make no path of its length or shorter.
        """
        path = rng.permutation(self.nodes)[: size + 1]
        edges = list(zip(path[:-1].tolist(), path[1:].tolist(), strict=True))
        others = [(a, b) for a in range(self.nodes) for b in range(self.nodes) if a != b]
        rng.shuffle(others)
        matrix = np.zeros((self.nodes, self.nodes), np.int64)
        matrix[tuple(np.array(edges).T)] = 1
        for edge in others:
            if len(edges) == self.edges:
                break
            if matrix[edge]:
                continue
            matrix[edge] = 1
            if self._is_only(matrix, path):
                edges.append(edge)
            else:
                matrix[edge] = 0
        return rng.permutation(np.array(edges)), path

    @staticmethod
    def _is_only(matrix: Array, path: Array) -> bool:
        """Whether no other path from the first to the last node is as short as ``path``."""
        ways = np.eye(len(matrix), dtype=np.int64)[path[0]]
        for _ in range(len(path) - 2):
            ways = ways @ matrix
            if ways[path[-1]]:
                return False
        return bool((ways @ matrix)[path[-1]] == 1)


Problems = Annotated[
    Copy | RepeatCopy | AssociativeRecall | NGrams | PrioritySort | ShortestPath,
    Field(discriminator="kind"),
]
PROBLEMS: tuple[type[Problem], ...] = (
    Copy,
    RepeatCopy,
    AssociativeRecall,
    NGrams,
    PrioritySort,
    ShortestPath,
)
"""All problems, in the order of the documentation."""
