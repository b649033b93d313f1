"""A store of columns: written once, memory-mapped, with random access.

A folder has ``store.json`` (written last) and, for each shard and column, flat little-endian
arrays:

- ``00000.NAME.values``: the concatenated values of rows;
- ``00000.NAME.offsets``: ``rows + 1`` 64-bit numbers, where each row starts and the last one ends;
  omitted if all rows have the same size;
- ``00000.NAME.shapes``: the free sizes of each row, if there are several.

``store.json`` has the codec of every column, the number of rows and values of every shard, and the
SHA-256 of every file. It may be a link to a store elsewhere (`heedful.data.store_index`). Stores of
heedful 0.1 are read too (`heedful.data.store_version_1`).
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.basics.errors import UserError
from heedful.basics.files import content_hash
from heedful.data.columns import Codec, Column
from heedful.data.mapped import OFFSET, Integers, damaged, scatter
from heedful.data.remote_files import CACHE_SIZE, cache_bytes
from heedful.data.shards import LazyColumns, Shards, ShardSize
from heedful.data.store_index import INDEX, Files, LocalFiles, file_name, parts_of, read_index
from heedful.data.store_version_1 import open_version_1
from heedful.data.store_writer import SHARD_ROWS, StoreWriter, write_index
from heedful.data.stored_column import StoredColumn

__all__ = ["INDEX", "SHARD_ROWS", "Store", "StoreWriter", "write_index"]

_VERIFIED_AT_ONCE = 4


class Store:
    """A store that `StoreWriter` wrote, opened without reading it.

    Attributes:
        folder: its folder.
        codecs: the codec of each column.
        facts: the facts given to `StoreWriter.finish`.
    """

    def __init__(
        self,
        folder: Path,
        codecs: Mapping[str, Codec],
        shards: Shards,
        facts: Mapping[str, Any],
        hashes: Mapping[str, str],
    ) -> None:
        self.folder, self.codecs, self.facts = folder, dict(codecs), dict(facts)
        self._shards = shards
        self.starts: Integers = np.cumsum([0, *(one.rows for one in shards.sizes)]).astype(np.int64)
        self._hashes = dict(hashes)
        self._most_verified: int | None = _VERIFIED_AT_ONCE
        self._is_remote = False

    @classmethod
    def open(
        cls, folder: Path, *, renamed: Mapping[str, str] | None = None, verified: bool = False
    ) -> "Store":
        """Map the files of ``folder``.

        Args:
            folder: the folder of the store, or of a link to a store elsewhere.
            renamed: new names for the columns ``source``, ``target`` and ``links`` of a store of
                heedful 0.1.
            verified: compare the files of a shard with their hashes when it is first read, as is
                always done for a store elsewhere.

        Raises:
            UserError: the folder is not a store, or a file is missing or damaged.
        """
        old = open_version_1(folder)
        if old is not None:
            names = {name: (renamed or {}).get(name, name) for name in old.codecs}
            columns = [
                {names[name]: column for name, column in shard.items()} for _, shard in old.shards
            ]
            sizes = [
                ShardSize(rows, {name: column.total for name, column in shard.items()})
                for (rows, _), shard in zip(old.shards, columns, strict=True)
            ]
            codecs = {names[name]: codec for name, codec in old.codecs.items()}
            return cls(folder, codecs, Shards(sizes, columns.__getitem__), old.facts, {})
        index, place = read_index(folder)
        try:
            verified = verified or not isinstance(place, LocalFiles) or place.folder != folder
            store = cls._of_index(folder, place, index, verified)
            complete = len(store) == index["rows"]
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise damaged(place.path(INDEX)) from error
        if not complete:
            raise damaged(place.path(INDEX))
        return store

    @classmethod
    def _of_index(
        cls, folder: Path, place: Files, index: Mapping[str, Any], verified: bool
    ) -> "Store":
        codecs = {
            name: Codec(**{**fields, "inner": tuple(fields["inner"])})
            for name, fields in index["columns"].items()
        }
        hashes: dict[str, str] = index["hashes"]
        sizes = [
            ShardSize(int(shard["rows"]), {name: int(shard["values"][name]) for name in codecs})
            for shard in index["shards"]
        ]

        def files(number: int, name: str) -> dict[str, str]:
            return {part: file_name(number, name, part) for part in parts_of(codecs[name])}

        def column(number: int, name: str) -> StoredColumn:
            rows, values = sizes[number]
            own = files(number, name).items()
            paths = {part: place.path(file, hashes.get(file)) for part, file in own}
            return StoredColumn(codecs[name], paths, rows, values[name])

        def opens(number: int) -> dict[str, StoredColumn]:
            if place.verifies:  # what is not read is not fetched
                return LazyColumns(partial(column, number))
            return {name: column(number, name) for name in codecs}

        def hashes_of(number: int) -> dict[Path, str]:
            names = [file for name in codecs for file in files(number, name).values()]
            return {place.path(name, hashes[name]): hashes[name] for name in names}

        needed = verified and not place.verifies
        shards = Shards(sizes, opens, hashes_of if needed else None, lazily=place.verifies)
        store = cls(folder, codecs, shards, index["facts"], hashes)
        store._is_remote = place.verifies
        return store

    @property
    def shard_sizes(self) -> Integers:
        """The number of rows of each shard."""
        return np.diff(self.starts)

    @property
    def bytes(self) -> int:
        """The approximate size of all files."""
        return sum(self.bytes_of(name) for name in self.codecs)

    def bytes_of(self, name: str) -> int:
        """The approximate size of the files of a column."""
        codec = self.codecs[name]
        width = prod(codec.inner) if codec.free < 2 else 1
        values = self.total(name) * width * np.dtype(codec.dtype).itemsize
        return values + len(self) * OFFSET.itemsize * (codec.free > 0)

    def require_cache(self, share: float) -> None:
        """Raise UserError if a share of the rows, read at a time, does not fit in the cache.

        Only stores at URLs are cached.
        """
        needed = self.bytes * share
        if self._is_remote and needed > cache_bytes():
            raise UserError(
                f"{self.folder}: {needed / (1 << 30):.2f} GiB are read at a time, and the local "
                f"cache has {cache_bytes() / (1 << 30):.2f} GiB; set training.shuffle_window to "
                f"a smaller number, or {CACHE_SIZE} to more GiB"
            )

    def verify_at_once(self) -> None:
        """From now on, verify all shards of a read; otherwise a few shards of each read.

        Random rows are in all shards: they would all be read before the first batch.
        """
        self._most_verified = None

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, row: int) -> dict[str, Any]:
        """All decoded columns of a row."""
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a store of {len(self)} rows")
        place = np.array([row % len(self)])
        return {
            name: codec.decoded(self.read(name, place).rows(codec)[0])
            for name, codec in self.codecs.items()
        }

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[row] for row in range(len(self)))

    def total(self, name: str) -> int:
        """The number of values in all rows of a column, such as the number of tokens."""
        return int(self.shard_values(name).sum())

    def lengths(self, name: str, rows: Integers) -> Integers:
        """The numbers of values ``[n]`` of ``rows``; 1 if no dimension is free."""
        found = np.empty(len(rows), np.int64)
        for shard, chosen, own in self._by_shard(rows):
            found[chosen] = shard[name].lengths(own)
            shard[name].release()
        return found

    def read(self, name: str, rows: Integers) -> Column:
        """Read rows of a column, in the order of ``rows`` [n].

        Raises:
            UserError: a file is damaged.
        """
        codec = self.codecs[name]
        lengths = self.lengths(name, rows)
        ends = np.cumsum(lengths)
        width = codec.inner if codec.free < 2 else ()
        values = np.empty((int(ends[-1]) if len(ends) else 0, *width), codec.dtype)
        shapes = np.empty((len(rows), codec.free), np.int64) if codec.free > 1 else None
        for shard, chosen, own in self._by_shard(rows):
            found = shard[name].read(own)
            scatter(values, (ends - lengths)[chosen], lengths[chosen], found.values)
            if shapes is not None and found.shapes is not None:
                shapes[chosen] = found.shapes
            shard[name].release()
        return Column(values, lengths, shapes)

    def spans(self, name: str, starts: Integers, width: int) -> list[NDArray[Any]]:
        """Parts of the concatenated values of all rows of a column.

        Args:
            name: the column.
            starts: [n] the index of the first value of each part.
            width: number of values of each part; a part that reaches the end has fewer.

        Raises:
            UserError: a file is damaged.
        """
        ends = np.cumsum(self.shard_values(name))
        firsts = np.searchsorted(ends, starts, side="right")
        lasts = np.searchsorted(ends, starts + width - 1, side="right")
        read = np.unique(np.concatenate([firsts, np.minimum(lasts, len(ends) - 1)]))
        self._shards.verify([one for one in read.tolist() if one < len(ends)], self._most_verified)
        found, touched = [], set[StoredColumn]()
        for start, number in zip(starts.tolist(), firsts.tolist(), strict=True):
            parts: list[NDArray[Any]] = [np.empty(0, self.codecs[name].dtype)]
            missing = width
            while missing and number < len(ends):
                column = self._shards[number][name]
                place = start - (int(ends[number - 1]) if number else 0)
                parts.append(column.values[place : place + missing])
                touched.add(column)
                start, missing = start + len(parts[-1]), missing - len(parts[-1])
                number += 1
            found.append(np.concatenate(parts))
        for column in touched:
            column.release()
        return found

    def shard_values(self, name: str) -> Integers:
        """The number of values of a column in each shard, such as the number of tokens."""
        return np.array([size.values[name] for size in self._shards.sizes], np.int64)

    @property
    def fingerprint(self) -> str:
        """A content hash of the store; empty for stores of heedful 0.1."""
        joined = "".join(f"{name} {own}\n" for name, own in sorted(self._hashes.items()))
        return hashlib.sha256(joined.encode()).hexdigest() if joined else ""

    def verify(self) -> None:
        """Read all files and compare them with their hashes.

        Raises:
            UserError: a file is damaged.
        """
        if not self._hashes:
            return
        place = read_index(self.folder)[1]
        for name, own in self._hashes.items():
            path = place.path(name, own)
            if content_hash(path) != own:
                raise damaged(path)

    def _by_shard(
        self, rows: Integers
    ) -> Iterator[tuple[dict[str, StoredColumn], NDArray[np.bool_], Integers]]:
        """Each shard with any of the rows, their indices, and their indices in the shard."""
        if not len(rows):
            return
        numbers = np.searchsorted(self.starts, rows, side="right") - 1
        found = np.unique(numbers)
        self._shards.verify(found.tolist(), self._most_verified)
        for number in found:
            chosen = numbers == number
            yield self._shards[int(number)], chosen, rows[chosen] - self.starts[number]
