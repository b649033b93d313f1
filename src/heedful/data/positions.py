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

    The common order of batches is cut into groups of ``count × each`` batches. Of every group, this
    process gets ``each`` batches, from number ``index × each`` on. The position after a group is
    the same for all processes.

    Attributes:
        index: from 0 to ``count - 1``.
        count: number of processes.
        each: number of batches of a group that each process gets.
    """

    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which is of no use here
    count: int = 1  # type: ignore[assignment]
    each: int = 1


SINGLE = Rank(0, 1)
"""The only process."""


def of_rank(order: Iterator[tuple[Position, T]], rank: Rank) -> Iterator[tuple[Position, T]]:
    """The items of an infinite ``order`` for ``rank``: ``rank.each`` of every group.

    Args:
        order: batches, or items to make them from, each with the position after it.
        rank: the rank.

    Yields:
        Items of the rank, with the position after the last item of the group.

    Example:
        >>> order = ((Position(1, 0, index + 1), index) for index in range(8))
        >>> taken = islice(of_rank(order, Rank(1, 2, each=2)), 4)
        >>> [(after.index, item) for after, item in taken]
        [(4, 2), (4, 3), (8, 6), (8, 7)]

    Raises:
        ValueError: ``rank.index`` is not below ``rank.count``.
    """
    if not 0 <= rank.index < rank.count:
        raise ValueError(f"rank {rank.index} is not one of {rank.count}")
    first = rank.index * rank.each
    while True:
        group = list(islice(order, rank.count * rank.each))
        for _, item in group[first : first + rank.each]:
            yield group[-1][0], item
