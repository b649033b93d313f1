"""Batches of examples that are drawn at random: a pure function of the seed and an index.

Shapes: B rows, T steps, A steps that are answered, I width of the inputs, O width of the outputs.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heedful.data.batching import FEWEST, even_rows
from heedful.data.positions import SINGLE as ALONE
from heedful.data.positions import Position, Rank, of_rank
from heedful.tasks.algorithm.problems import Drawn, Problem

TRAIN, VALIDATION, TEST, SINGLE = range(4)
"""The parts of the data; each has examples of its own."""
_ROWS = 64
"""Rows of a batch of held-out examples."""


@dataclass(frozen=True)
class AlgorithmBatch:
    """Examples of one size.

    Attributes:
        inputs: ``[B, T, I]``.
        targets: the bits of the answered steps ``[B, A, O]``, float32.
        answered: ``[T]``, bool.
    """

    inputs: Tensor
    targets: Tensor
    answered: Tensor

    @classmethod
    def of(cls, drawn: Drawn) -> "AlgorithmBatch":
        """The tensors of drawn examples."""
        targets = torch.from_numpy(drawn.targets[:, drawn.answered].astype(np.float32))
        return cls(torch.from_numpy(drawn.inputs), targets, torch.from_numpy(drawn.answered))

    @property
    def weight(self) -> int:
        """Number of bits that are answered."""
        return self.targets.numel()

    def to(self, device: torch.device | str) -> "AlgorithmBatch":
        """The same batch on ``device``."""
        moved = (one.to(device) for one in (self.inputs, self.targets, self.answered))
        return AlgorithmBatch(*moved)

    def split(self, count: int, fewest: int = FEWEST) -> list["AlgorithmBatch"]:
        """At most ``count`` batches of similar size, each with about ``fewest`` steps or more."""
        steps = torch.full((len(self.inputs),), self.inputs.shape[1])
        return [
            AlgorithmBatch(self.inputs[rows], self.targets[rows], self.answered)
            for rows in even_rows(steps, count, fewest)
        ]


def generator(seed: int, part: int, *index: int) -> np.random.Generator:
    """The random generator of a batch."""
    return np.random.default_rng([seed, part, *index])


def training_batches(
    problem: Problem, batch_tokens: int, position: Position, rank: Rank = ALONE
) -> Iterator[tuple[Position, AlgorithmBatch]]:
    """Endless batches from ``position``, each with the position after it.

    A batch has as many rows as fit into ``batch_tokens`` steps, at least one. Only the batches of
    ``rank`` are drawn.
    """
    for after, index in of_rank(_indices(position), rank):
        rng = generator(position.seed, TRAIN, index)
        size = _size(problem, rng)
        rows = max(1, batch_tokens // problem.steps(size))
        yield after, AlgorithmBatch.of(problem.draw(rng, rows, size))


def _indices(position: Position) -> Iterator[tuple[Position, int]]:
    """The index of each batch, with the position after it."""
    for index in itertools.count(position.index):
        yield position._replace(index=index + 1), index


def held_out(
    problem: Problem, seed: int, part: int, count: int, size: int | None = None
) -> Iterator[Drawn]:
    """``count`` examples that are not trained on, always the same ones.

    Args:
        problem: what is drawn.
        seed: of the recipe.
        part: ``VALIDATION`` or ``TEST``.
        count: the number of examples.
        size: of all examples; drawn for each batch if None.
    """
    rows = min(_ROWS, max(1, -(-count // 16)))  # at least 16 batches, because each has one size
    for index, first in enumerate(range(0, count, rows)):
        rng = generator(seed, part, index, 0 if size is None else size)
        own = _size(problem, rng) if size is None else size
        yield problem.draw(rng, min(rows, count - first), own)


def _size(problem: Problem, rng: np.random.Generator) -> int:
    return int(rng.integers(problem.sizes[0], problem.sizes[1] + 1))
