"""Memory-mapped flat arrays."""

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.basics.bounded_reading import open_regular
from heedful.basics.errors import UserError

OFFSET = np.dtype("<i8")

Integers = NDArray[np.int64]
_LONG = 256
"""Mean number of values of a range from which ranges are copied one by one."""


def ranges(starts: Integers, sizes: Integers) -> Integers:
    """The concatenated ranges ``starts[i] … starts[i] + sizes[i] - 1``."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    places: Integers = np.arange(total) + np.repeat(starts - (ends - sizes), sizes)
    return places


def gathered(values: NDArray[Any], starts: Integers, sizes: Integers) -> NDArray[Any]:
    """The values ``[all, …]`` of the ranges, concatenated.

    Long ranges are copied one by one: the index of each value would take 8 bytes.
    """
    if not _are_long(sizes):
        found: NDArray[Any] = values[ranges(starts, sizes)]
        return found
    return np.concatenate(
        [values[start : start + size] for start, size in zip(*_lists(starts, sizes), strict=True)]
    )


def scatter(target: NDArray[Any], starts: Integers, sizes: Integers, values: NDArray[Any]) -> None:
    """Write concatenated ``values`` to the ranges of ``target``: the inverse of `gathered`."""
    if not _are_long(sizes):
        target[ranges(starts, sizes)] = values
        return
    place = 0
    for start, size in zip(*_lists(starts, sizes), strict=True):
        target[start : start + size] = values[place : place + size]
        place += size


def _are_long(sizes: Integers) -> bool:
    return bool(len(sizes)) and int(sizes.sum()) >= _LONG * len(sizes)


def _lists(*arrays: Integers) -> tuple[list[int], ...]:
    return tuple(array.tolist() for array in arrays)


class Mapped:
    """A memory-mapped flat array.

    Args:
        path: the file.
        kind: the type of a number.
        count: expected number of values.

    Raises:
        UserError: the file is missing or has a wrong size.
    """

    def __init__(self, path: Path, kind: np.dtype[Any], count: int) -> None:
        self.path = path
        self._map: mmap.mmap | None = None
        self.array: NDArray[Any] = np.empty(0, kind)
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                if size != count * kind.itemsize:
                    raise damaged(path, f": {size:,} bytes instead of {count * kind.itemsize:,}")
                if not count:  # an empty file cannot be mapped
                    return
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from error
        self.array = np.frombuffer(self._map, kind)

    def release(self) -> None:
        """Unmap the pages read so far; they stay in the page cache of the system.

        Otherwise, as on systems without this call, they count as memory of the process.
        """
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


def damaged(path: Path, how: str = "") -> UserError:
    """The error for a damaged file."""
    return UserError(f"{path}: the file is damaged{how}; encode the corpus again")
