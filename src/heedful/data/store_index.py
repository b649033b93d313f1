"""The index of a store, and where its files are.

``store.json`` is the index, or a link: the place of a store elsewhere, in another folder or at a
URL, and the SHA-256 of its index.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from heedful.basics.bounded_reading import parse_json, read_bytes, read_json
from heedful.basics.errors import UserError
from heedful.basics.files import write_json
from heedful.basics.urls import url_of
from heedful.data.columns import Codec
from heedful.data.mapped import damaged
from heedful.data.remote_files import RemoteFiles

INDEX = "store.json"
FORMAT = 2
LINK = 3


def parts_of(codec: Codec) -> list[str]:
    """The parts of a column, each of which is a file of every shard."""
    return ["values", "offsets", "shapes"][: min(codec.free, 2) + 1] if codec.free else ["values"]


def file_name(number: int, name: str, part: str) -> str:
    """The file of a shard with a part of the column ``name``."""
    return f"{number:05}.{name}.{part}"


class Files(Protocol):
    """The place of a store's files."""

    @property
    def verifies(self) -> bool:
        """Whether `path` compares files with their hashes."""
        ...

    def path(self, name: str, sha256: str | None = None) -> Path:
        """A path from which a file can be read."""
        ...


@dataclass(frozen=True)
class LocalFiles:
    """Files in a folder."""

    folder: Path
    verifies: bool = False

    def path(self, name: str, sha256: str | None = None) -> Path:
        """The path of a file, which may not exist."""
        return self.folder / name


def read_index(folder: Path) -> tuple[Mapping[str, Any], Files]:
    """The index of a store, and where its files are.

    Args:
        folder: a folder or a URL.

    Raises:
        UserError: there is no store, its index is damaged or not the one that a link names, or a
            URL cannot be read.
    """
    place = _files(folder)
    path = place.path(INDEX)
    index = read_json(path)
    if index.get("format") == LINK:
        try:
            at, expected = str(index["at"]), str(index["index"])
        except KeyError as error:
            raise damaged(path) from error
        linked = _files(Path(at))
        content = _read_linked(linked, at, folder)
        if hashlib.sha256(content).hexdigest() != expected:
            raise UserError(
                f"{at} is not the encoded corpus that {folder} was made with (its index differs); "
                "restore it, or start another run"
            )
        place, index = linked, parse_json(content, at)
        path = place.path(INDEX)
    if index.get("format") != FORMAT:
        raise UserError(f"{path}: not an encoded corpus that this version of heedful reads")
    return index, place


def _read_linked(files: Files, at: str, folder: Path) -> bytes:
    try:
        return read_bytes(files.path(INDEX))
    except UserError as error:
        raise UserError(
            f"the encoded corpus {at}, which {folder} needs, cannot be read; put it back there "
            f"({error})"
        ) from error


def link_store(folder: Path, at: str | Path) -> None:
    """Write a link to the store ``at`` into ``folder``, as its index.

    Raises:
        UserError: there is no store, or the folder cannot be written.
    """
    index, place = read_index(Path(at))
    assert index
    content = read_bytes(place.path(INDEX))
    elsewhere = url_of(at) or str(Path(at).resolve())
    digest = hashlib.sha256(content).hexdigest()
    write_json(folder / INDEX, {"format": LINK, "at": elsewhere, "index": digest})


def _files(folder: Path) -> Files:
    url = url_of(folder)
    return LocalFiles(folder) if url is None else RemoteFiles.of(url)
