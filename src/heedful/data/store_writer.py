"""Writes a store of columns (`heedful.data.store`)."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.basics.files import write_json
from heedful.data.columns import Codec, Column, Columns
from heedful.data.mapped import OFFSET
from heedful.data.store_index import FORMAT, INDEX, file_name, parts_of

SHARD_ROWS = 250_000
"""Size of a shard; all of its pages may be mapped for a moment."""


class StoreWriter:
    """Writes groups of rows into an existing folder; `finish` writes the index.

    Memory contains the rows of one call only.

    Args:
        folder: the folder; use it inside `heedful.basics.files.atomic_folder`.
        codecs: the codec of each column.
        shard_rows: number of rows in a shard; None for a single shard.
        first: the number of the first shard, if other writers write those before it.
    """

    def __init__(
        self,
        folder: Path,
        codecs: Mapping[str, Codec],
        shard_rows: int | None = SHARD_ROWS,
        first: int = 0,
    ) -> None:
        self._folder, self._codecs, self._shard_rows = folder, dict(codecs), shard_rows
        self._first = first
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
        write_index(self._folder, self._codecs, [self.close()], facts)

    def close(self) -> dict[str, Any]:
        """Close the files; returns what `write_index` needs to know of them."""
        if not self._shards:
            self._open()
        self._close()
        return {"shards": self._shards, "hashes": self._hashes}

    def _open(self) -> None:
        number = self._first + len(self._shards)
        for name, codec in self._codecs.items():
            for part in parts_of(codec):
                file = file_name(number, name, part)
                self._files[file] = _HashedFile(self._folder / file)
            if codec.free:
                self._files[file_name(number, name, "offsets")].write(np.zeros(1, OFFSET))
        self._shards.append({"rows": 0, "values": dict.fromkeys(self._codecs, 0)})

    def _append(self, name: str, column: Column, shard: dict[str, Any]) -> None:
        codec, number = self._codecs[name], self._first + len(self._shards) - 1

        def file(part: str) -> "_HashedFile":
            return self._files[file_name(number, name, part)]

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


def write_index(
    folder: Path,
    codecs: Mapping[str, Codec],
    written: Iterable[Mapping[str, Any]],
    facts: Mapping[str, Any],
) -> None:
    """Write the index of a store.

    Args:
        folder: the folder of its files.
        codecs: the codec of each column.
        written: what :meth:`StoreWriter.close` returned, in the order of the shards.
        facts: additional facts.
    """
    shards: list[Any] = []
    hashes: dict[str, str] = {}
    for one in written:
        shards += one["shards"]
        hashes |= one["hashes"]
    index = {
        "format": FORMAT,
        "rows": sum(shard["rows"] for shard in shards),
        "columns": {name: asdict(codec) for name, codec in codecs.items()},
        "shards": shards,
        "hashes": hashes,
        "facts": dict(facts),
    }
    write_json(folder / INDEX, index)


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
