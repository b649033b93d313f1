"""Positions: where training stands in its data, as three integers."""

from typing import NamedTuple


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
