"""A store of columns: written once, memory-mapped, with random access.

A folder has ``store.json`` (written last) and, for each shard and column, flat little-endian
arrays:

- ``00000.NAME.values``: the concatenated values of rows;
- ``00000.NAME.offsets``: ``rows + 1`` 64-bit numbers, where each row starts and the last one ends;
  omitted if all rows have the same size;
- ``00000.NAME.shapes``: the free sizes of each row, if there are several.

``store.json`` has the codec of every column, the number of rows and values of every shard, and the
SHA-256 of every file. Stores of heedful 0.1 are read too (`heedful.data.store_version_1`).
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.files import content_hash, write_json
from heedful.data.columns import Codec, Column, Columns
from heedful.data.mapped import OFFSET, Integers, damaged, ranges
from heedful.data.store_version_1 import open_version_1
from heedful.data.stored_column import StoredColumn

INDEX = "store.json"
FORMAT = 2
SHARD_ROWS = 250_000
"""Size of a shard; all of its pages may be mapped for a moment."""


class StoreWriter:
    """Writes groups of rows into an existing folder; `finish` writes the index.

    Memory contains the rows of one call only.

    Args:
        folder: the folder; use it inside `heedful.basics.files.atomic_folder`.
        codecs: the codec of each column.
        shard_rows: number of rows in a shard; None for a single shard.
    """

    def __init__(
        self, folder: Path, codecs: Mapping[str, Codec], shard_rows: int | None = SHARD_ROWS
    ) -> None:
        self._folder, self._codecs, self._shard_rows = folder, dict(codecs), shard_rows
        self._shards: list[dict[str, Any]] = []
        self._files: dict[str, _HashedFile] = {}
        self._hashes: dict[str, str] = {}

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def add(self, columns: Columns) -> None:
        """Append rows.

        Raises:
            ValueError: a column is missing or unknown, columns have different numbers of rows, or a
                value is out of range.
        """
        if columns.keys() != self._codecs.keys():
            raise ValueError(f"columns {sorted(columns)} instead of {sorted(self._codecs)}")
        counts = {name: len(column.lengths) for name, column in columns.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"columns with different numbers of rows: {counts}")
        checked = {name: self._codecs[name].checked(column) for name, column in columns.items()}
        first, count = 0, next(iter(counts.values()))
        while first < count:
            if not self._files:
                self._open()
            shard = self._shards[-1]
            room = count if self._shard_rows is None else self._shard_rows - shard["rows"]
            end = min(count, first + room)
            for name, column in checked.items():
                self._append(name, column.part(first, end), shard)
            shard["rows"] += end - first
            first = end
            if shard["rows"] == self._shard_rows:
                self._close()

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Close the files and write the index with additional ``facts``."""
        if not self._shards:
            self._open()
        self._close()
        index = {
            "format": FORMAT,
            "rows": sum(shard["rows"] for shard in self._shards),
            "columns": {name: asdict(codec) for name, codec in self._codecs.items()},
            "shards": self._shards,
            "hashes": self._hashes,
            "facts": dict(facts),
        }
        write_json(self._folder / INDEX, index)

    def _open(self) -> None:
        number = len(self._shards)
        for name, codec in self._codecs.items():
            for part in _parts(codec):
                path = _file(self._folder, number, name, part)
                self._files[path.name] = _HashedFile(path)
            if codec.free:
                self._files[_file(self._folder, number, name, "offsets").name].write(
                    np.zeros(1, OFFSET)
                )
        self._shards.append({"rows": 0, "values": dict.fromkeys(self._codecs, 0)})

    def _append(self, name: str, column: Column, shard: dict[str, Any]) -> None:
        codec, number = self._codecs[name], len(self._shards) - 1

        def file(part: str) -> "_HashedFile":
            return self._files[_file(self._folder, number, name, part).name]

        file("values").write(column.values)
        if codec.free:
            file("offsets").write(
                (shard["values"][name] + np.cumsum(column.lengths)).astype(OFFSET)
            )
        if column.shapes is not None:
            file("shapes").write(column.shapes.astype(OFFSET))
        shard["values"][name] += len(column.values)

    def _close(self) -> None:
        for name, file in self._files.items():
            self._hashes[name] = file.close()
        self._files = {}


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
        shards: list[tuple[int, dict[str, StoredColumn]]],
        facts: Mapping[str, Any],
        hashes: Mapping[str, str],
    ) -> None:
        self.folder, self.codecs, self.facts = folder, dict(codecs), dict(facts)
        self._shards = [columns for _, columns in shards]
        self._starts = np.cumsum([0, *(rows for rows, _ in shards)]).astype(np.int64)
        self._hashes = dict(hashes)

    @classmethod
    def open(cls, folder: Path, *, renamed: Mapping[str, str] | None = None) -> "Store":
        """Map the files of ``folder``.

        Args:
            folder: the folder of the store.
            renamed: new names for the columns ``source``, ``target`` and ``links`` of a store of
                heedful 0.1.

        Raises:
            UserError: the folder is not a store, or a file is missing or damaged.
        """
        old = open_version_1(folder)
        if old is not None:
            names = {name: (renamed or {}).get(name, name) for name in old.codecs}
            shards = [
                (rows, {names[name]: column for name, column in columns.items()})
                for rows, columns in old.shards
            ]
            codecs = {names[name]: codec for name, codec in old.codecs.items()}
            return cls(folder, codecs, shards, old.facts, {})
        path = folder / INDEX
        index = read_json(path)
        if index.get("format") != FORMAT:
            raise UserError(f"{path}: not an encoded corpus that this version of heedful reads")
        try:
            store = cls._of_index(folder, index)
            complete = len(store) == index["rows"]
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise damaged(path) from error
        if not complete:
            raise damaged(path)
        return store

    @classmethod
    def _of_index(cls, folder: Path, index: Mapping[str, Any]) -> "Store":
        codecs = {
            name: Codec(**{**fields, "inner": tuple(fields["inner"])})
            for name, fields in index["columns"].items()
        }
        shards = []
        for number, shard in enumerate(index["shards"]):
            columns = {}
            for name, codec in codecs.items():
                files = {part: _file(folder, number, name, part) for part in _parts(codec)}
                sizes = (shard["rows"], shard["values"][name])
                columns[name] = StoredColumn(codec, files, *sizes)
            shards.append((shard["rows"], columns))
        return cls(folder, codecs, shards, index["facts"], index["hashes"])

    def __len__(self) -> int:
        return int(self._starts[-1])

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
        return sum(shard[name].total for shard in self._shards)

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
            values[ranges((ends - lengths)[chosen], lengths[chosen])] = found.values
            if shapes is not None and found.shapes is not None:
                shapes[chosen] = found.shapes
            shard[name].release()
        return Column(values, lengths, shapes)

    def flat(self, name: str) -> StoredColumn:
        """A column of a store with one shard, whose values can be read as one array."""
        if len(self._shards) != 1:
            raise ValueError(f"{self.folder} has {len(self._shards)} shards")
        return self._shards[0][name]

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
        for name, own in self._hashes.items():
            if content_hash(self.folder / name) != own:
                raise damaged(self.folder / name)

    def _by_shard(
        self, rows: Integers
    ) -> Iterator[tuple[dict[str, StoredColumn], NDArray[np.bool_], Integers]]:
        """Each shard with any of the rows, their indices, and their indices in the shard."""
        if not len(rows):
            return
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(numbers):
            chosen = numbers == number
            yield self._shards[int(number)], chosen, rows[chosen] - self._starts[number]


class _HashedFile:
    """A file and the SHA-256 of its content."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._hash = hashlib.sha256()

    def write(self, values: NDArray[Any]) -> None:
        content = values.tobytes()
        self._file.write(content)
        self._hash.update(content)

    def close(self) -> str:
        self._file.close()
        return self._hash.hexdigest()


def _parts(codec: Codec) -> list[str]:
    return ["values", "offsets", "shapes"][: min(codec.free, 2) + 1] if codec.free else ["values"]


def _file(folder: Path, number: int, name: str, part: str) -> Path:
    return folder / f"{number:05}.{name}.{part}"
