"""Positions in the training data, and ranks of processes that share the data."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Position(NamedTuple):
    """The position of the next batch; checkpoints store it to resume exactly.

    Attributes:
        seed: seed of the order of all epochs.
        epoch: number of completed epochs.
        index: position in the epoch. ``TokenBatches`` uses ``pool number x pool size + batch in the
            pool``, so that it can find the batch without reading the epoch.
    """

    seed: int
    epoch: int = 0
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which is of no use here


class Rank(NamedTuple):
    """One of several processes that train together.

    A step takes the next ``count`` batches of a common order, and this process gets number
    ``index``. The position after a step is the same for all processes.

    Attributes:
        index: from 0 to ``count - 1``.
        count: number of processes.
    """

    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which is of no use here
    count: int = 1  # type: ignore[assignment]


SINGLE = Rank(0, 1)
"""The only process."""


def of_rank(order: Iterator[tuple[Position, T]], rank: Rank) -> Iterator[tuple[Position, T]]:
    """The items of an infinite ``order`` for ``rank``: one of every ``rank.count``.

    Args:
        order: batches, or items to make them from, each with the position after it.
        rank: the rank.

    Yields:
        Items of the rank, with the position after the last item of the step.

    Raises:
        ValueError: ``rank.index`` is not below ``rank.count``.
    """
    if not 0 <= rank.index < rank.count:
        raise ValueError(f"rank {rank.index} is not one of {rank.count}")
    while True:
        step = list(islice(order, rank.count))
        yield step[-1][0], step[rank.index][1]
