"""Positions: the progress of training in its data. Ranks: processes that share the data."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Position(NamedTuple):
    """The next batch to come: a checkpoint stores it, and going on from it is exact.

    Attributes:
        seed: chooses the order of all epochs.
        epoch: passes over the corpus that are complete.
        index: place within the epoch; ``TokenBatches`` counts ``pool number x pool size + batch in
            the pool``, so that the batch is found without going through the epoch.
    """

    seed: int
    epoch: int = 0
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which is of no use here


class Rank(NamedTuple):
    """One of several processes that train together.

    A step takes the next ``count`` batches of one order, of which this process gets number
    ``index``. The position after a step is the same for all of them.

    Attributes:
        index: from 0 to ``count - 1``.
        count: number of processes.
    """

    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which is of no use here
    count: int = 1  # type: ignore[assignment]


SINGLE = Rank(0, 1)
"""The only process."""


def of_rank(order: Iterator[tuple[Position, T]], rank: Rank) -> Iterator[tuple[Position, T]]:
    """What ``rank`` gets of an endless ``order``: one of every ``rank.count``.

    Args:
        order: batches, or what they are made from, each with the position after it.
        rank: whose.

    Yields:
        The rank's own, with the position after the last of the step.

    Raises:
        ValueError: ``rank.index`` is not one of ``rank.count``.
    """
    if not 0 <= rank.index < rank.count:
        raise ValueError(f"rank {rank.index} is not one of {rank.count}")
    while True:
        step = list(islice(order, rank.count))
        yield step[-1][0], step[rank.index][1]
