"""Token links of a shard's pairs, in two flat files beside its tokens.

- ``00000.links``: unsigned 16-bit numbers (32-bit where a side may have more than 65,536 tokens),
  of each link the source token, then the target token;
- ``00000.link-offsets``: signed 64-bit numbers, ``pairs + 1`` of them: where each pair's links
  start among the shard's links, and at last their number.
"""

from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.mapped import OFFSET, Integers, Mapped, damaged, ranges


class Links(NamedTuple):
    """The token links of some pairs."""

    tokens: Integers
    """``[links, 2]``: source token, target token; those of the first pair, then of the next."""
    counts: Integers
    """``[pairs]``: how many links each pair has."""


class LinkWriter:
    """Writes the links of one shard, many pairs at a time."""

    def __init__(self, folder: Path, number: int, kind: np.dtype[Any]) -> None:
        links, offsets = _files(folder, number)
        self._kind = kind
        self._files: tuple[BinaryIO, BinaryIO] = (links.open("wb"), offsets.open("wb"))
        self._files[1].write(np.zeros(1, OFFSET).tobytes())
        self.links = 0

    def add(self, links: Links) -> None:
        """Append the links of further pairs."""
        ends = self.links + np.cumsum(links.counts)
        self._files[0].write(links.tokens.astype(self._kind).tobytes())
        self._files[1].write(ends.astype(OFFSET).tobytes())
        self.links += len(links.tokens)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


class StoredLinks:
    """The links of one shard, mapped."""

    def __init__(
        self, folder: Path, number: int, kind: np.dtype[Any], pairs: int, links: int
    ) -> None:
        tokens, offsets = _files(folder, number)
        self._tokens = Mapped(tokens, kind, 2 * links)
        self._offsets = Mapped(offsets, OFFSET, pairs + 1)
        self._total = links
        if self._offsets.array[0] != 0 or self._offsets.array[-1] != links:
            raise damaged(offsets)

    def gather(self, rows: Integers) -> Links:
        """The links of the pairs at ``rows``, in that order."""
        bounds: NDArray[Any] = self._offsets.array[rows[:, None] + np.arange(2)]
        starts, counts = bounds[:, 0], np.diff(bounds, axis=1)[:, 0]
        if (counts < 0).any() or (len(bounds) and (bounds.min() < 0 or bounds.max() > self._total)):
            raise damaged(self._offsets.path)
        tokens = self._tokens.array.reshape(-1, 2)[ranges(starts, counts)].astype(np.int64)
        self._tokens.release()
        self._offsets.release()
        return Links(tokens, counts)


def link_type(max_tokens: int) -> np.dtype[Any]:
    """The smallest numbers that reach the last token of a side."""
    return np.dtype("<u2" if max_tokens <= 1 << 16 else "<u4")


def _files(folder: Path, number: int) -> tuple[Path, Path]:
    return folder / f"{number:05}.links", folder / f"{number:05}.link-offsets"
