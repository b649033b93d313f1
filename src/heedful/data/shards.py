"""The shards of a store: opened when they are read, verified when they are first read.

A store of 100 million pairs has 400 shards of two columns, 1,600 files. A process may open 1,024 at
a time on most systems, so that only the shards that were read last are kept open.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from heedful.basics.files import content_hash
from heedful.data.mapped import damaged
from heedful.data.stored_column import StoredColumn

MOST_OPEN = 64
"""Number of shards that are open at the same time; with links, each has six files."""

Opens = Callable[[int], dict[str, StoredColumn]]


class LazyColumns(dict[str, StoredColumn]):
    """The columns of a shard, each opened when it is first used.

    Args:
        opens: opens a column, given its name.
    """

    def __init__(self, opens: Callable[[str], StoredColumn]) -> None:
        super().__init__()
        self._opens = opens

    def __missing__(self, name: str) -> StoredColumn:
        self[name] = found = self._opens(name)
        return found


class ShardSize(NamedTuple):
    """The size of a shard."""

    rows: int
    values: Mapping[str, int]
    """Number of values of each column."""


class Shards:
    """The shards of a store.

    A store with at most `MOST_OPEN` shards is opened at once, so that a missing file is an error
    before it is used.

    Args:
        sizes: of each shard.
        opens: opens the columns of a shard, given its number.
        hashes: the path and SHA-256 of each file of a shard, given its number; None if the files
            need not be verified.
        lazily: whether no shard is opened before it is read, however few there are.

    Raises:
        UserError: a file is missing or damaged.
    """

    def __init__(
        self,
        sizes: Sequence[ShardSize],
        opens: Opens,
        hashes: Callable[[int], Mapping[Path, str]] | None = None,
        *,
        lazily: bool = False,
    ) -> None:
        self.sizes, self._opens, self._hashes = list(sizes), opens, hashes
        self._open: OrderedDict[int, dict[str, StoredColumn]] = OrderedDict()
        self._unverified = set(range(len(sizes))) if hashes is not None else set()
        if len(sizes) <= MOST_OPEN and not lazily:
            for number in range(len(sizes)):
                self._open[number] = opens(number)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: int) -> dict[str, StoredColumn]:
        """The columns of a shard."""
        found = self._open.get(number)
        if found is None:
            if len(self._open) >= MOST_OPEN:
                self._open.popitem(last=False)
            found = self._open[number] = self._opens(number)
        elif len(self.sizes) > MOST_OPEN:
            self._open.move_to_end(number)
        return found

    def verify(self, numbers: Sequence[int], most: int | None = None) -> None:
        """Compare the files of shards with their hashes, unless that was done before.

        Args:
            numbers: the shards.
            most: maximum number of shards to verify now; None for all.

        Raises:
            UserError: a file is damaged.
        """
        if self._hashes is None or not self._unverified:
            return
        for number in [one for one in numbers if one in self._unverified][:most]:
            for path, own in self._hashes(number).items():
                if content_hash(path) != own:
                    raise damaged(path, ": its SHA-256 differs from that in the index")
            self._unverified.discard(number)
