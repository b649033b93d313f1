"""Orders of rows that are computed, not stored: any position costs the same, in any epoch."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from heedful.data.mapped import Integers

_ROUNDS = 6

Words = NDArray[np.uint64]


class FullOrder:
    """A pseudo-random permutation of all rows, a function of a key.

    Args:
        rows: number of rows.

    Attributes:
        share_at_once: the largest share of the rows that is read at a time.
    """

    def __init__(self, rows: int) -> None:
        self.rows, self.share_at_once = rows, 1.0

    def __call__(self, ranks: Integers, key: str) -> Integers:
        """The rows at ``ranks`` [n] of the order."""
        return permute(ranks, self.rows, key)


class WindowOrder:
    """Shards in a random order, divided into windows whose rows are shuffled: a function of a key.

    A full permutation reads random pages of all files. In this order, only the files of one window
    are read at a time. Every row occurs once. Memory holds a few numbers for each shard.

    Args:
        sizes: number of rows of each shard.
        window: the least size of a window; the last window may be smaller.
        weights: the size of each shard in the unit of ``window``; by default its number of rows.

    Attributes:
        share_at_once: the largest share of the rows that is read at a time.

    Example:
        >>> order = WindowOrder(np.array([2, 2, 2, 2]), window=4)
        >>> rows = order(np.arange(8), "any key")
        >>> sorted(rows.tolist()), [len(set(part // 2)) for part in np.split(rows, 2)]
        ([0, 1, 2, 3, 4, 5, 6, 7], [2, 2])
    """

    def __init__(self, sizes: Integers, window: int, weights: Integers | None = None) -> None:
        self.sizes = sizes.astype(np.int64)
        self.rows = int(self.sizes.sum())
        self.starts = np.cumsum(self.sizes) - self.sizes
        weights = self.sizes if weights is None else weights
        largest = max(1, int(weights.max()) if len(weights) else 1)
        self.shards = min(len(sizes), -(-window // largest))
        """Number of shards in a window."""
        self.share_at_once = min(1.0, self.shards * largest / max(1, int(weights.sum())))

    def __call__(self, ranks: Integers, key: str) -> Integers:
        """The rows at ``ranks`` [n] of the order."""
        shards = permute(np.arange(len(self.sizes)), len(self.sizes), f"shards {key}")
        ends = np.cumsum(self.sizes[shards])
        begins = ends - self.sizes[shards]
        firsts = begins[:: self.shards]
        lasts = np.append(firsts[1:], ends[-1:])
        windows = np.searchsorted(lasts, ranks, side="right")
        rows = np.empty(len(ranks), np.int64)
        for number in np.unique(windows):
            chosen = windows == number
            first, size = firsts[number], int(lasts[number] - firsts[number])
            own = first + permute(ranks[chosen] - first, size, f"window {number} {key}")
            places = np.searchsorted(ends, own, side="right")
            rows[chosen] = self.starts[shards[places]] + own - begins[places]
        return rows


def permute(ranks: Integers, size: int, key: str) -> Integers:
    """The values of a pseudo-random permutation of ``range(size)`` at ``ranks``, in O(1) memory.

    A Feistel network permutes numbers of an even number of bits. It is applied again while the
    result is out of range (cycle walking; Black and Rogaway 2002, "Ciphers with Arbitrary Finite
    Domains").
    """
    half = np.uint64(max(1, -(-(size - 1).bit_length() // 2)))
    mask = (np.uint64(1) << half) - np.uint64(1)

    def network(numbers: Words) -> Words:
        left, right = numbers >> half, numbers & mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (mix(right, f"{key} {turn}") & mask)
        return (left << half) | right

    numbers = network(ranks.astype(np.uint64))
    while len(outside := np.flatnonzero(numbers >= size)):
        numbers[outside] = network(numbers[outside])
    return numbers.astype(np.int64)


def mix(numbers: Words, key: str) -> Words:
    """Pseudo-random numbers by the finaliser of SplitMix64 (Steele et al. 2014), with a key."""
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    before, after = np.frombuffer(digest, "<u8")
    numbers = numbers ^ before
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Words = numbers ^ (numbers >> np.uint64(31)) ^ after
    return mixed
