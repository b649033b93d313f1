"""Files that are whole or absent: everything is written beside its place, then renamed."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from heedful.basics.errors import UserError


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file beside ``path``; it takes the place of ``path`` when the block succeeds.

    Raises:
        UserError: the folder cannot be written or the disk is full; nothing is left behind.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside ``path``; it replaces ``path`` when the block succeeds.

    Raises:
        UserError: the folder cannot be written or the disk is full; nothing is left behind.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        yield beside
        for file in beside.rglob("*"):
            if file.is_file():
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
        if path.exists():
            shutil.rmtree(path)
        os.replace(beside, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Delete what a process that was killed in the middle of a write has left in ``folder``."""
    for path in folder.glob(".*.part"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_bytes(path: Path) -> bytes:
    """A file's bytes.

    Raises:
        UserError: the file is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file.

    Raises:
        UserError: the file is missing, damaged, or holds something else.
    """
    try:
        values = json.loads(read_bytes(path))
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON; the file is damaged") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object; the file is damaged")
    return values


def cannot_write(path: Path, error: OSError) -> UserError:
    """The user's error for a failed write, naming the file and the system's reason."""
    reason = error.strerror or str(error)
    return UserError(f"cannot write {path}: {reason}; free some space or choose another place")


def content_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
