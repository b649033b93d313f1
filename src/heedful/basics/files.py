"""Atomic writes: files and folders are written to a temporary path, then renamed.

In a folder that only its owner may enter (mode 0700, as run folders have), new files and folders
are private, too; elsewhere the user's umask determines their modes.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from heedful.basics.bounded_reading import open_regular
from heedful.basics.errors import UserError

_OTHERS = 0o077
"""The permission bits of all users except the owner."""
_UNFINISHED = ".unfinished"
_DEVICES = frozenset({"/dev", "/dev/fd", "/proc/self/fd"})
"""Folders of devices and of the open files of a process."""
_STANDARD = {"stdout": "1", "stderr": "2"}
"""Names of open files → their numbers."""


def is_device(path: Path) -> bool:
    """Whether a path is a device or an open file by its place, as ``/dev/null`` is.

    A link to one, in another folder, is none: somebody else may have put it there.
    """
    return os.path.dirname(os.path.abspath(path)) in _DEVICES and path.exists()


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary binary file; it replaces ``path`` when the block succeeds.

    A device, such as ``/dev/null``, is never replaced: it is opened itself (:func:`is_device`).

    Raises:
        UserError: the folder cannot be written or the disk is full; nothing is left behind.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if is_device(path):
            with _open_device(path) as file:
                yield file
            return
        _make_folders(path.parent)
        with _create(beside) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary folder; it replaces ``path`` when the block succeeds.

    Args:
        path: the folder.
        private: whether only its owner may enter it.

    Raises:
        UserError: the folder cannot be written or the disk is full; nothing is left behind.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        _make_folders(path.parent)
        beside.mkdir(mode=0o777 & ~(_OTHERS if private else _withheld(path.parent)))
        yield beside
        move_folder(beside, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _open_device(path: Path) -> IO[bytes]:
    """Open a device; an open file is continued at its place, not cut off."""
    number = _STANDARD.get(path.name, path.name)
    return os.fdopen(os.dup(int(number)), "wb") if number.isdecimal() else path.open("wb")


def unfinished_folder(path: Path) -> Path:
    """The folder in which long work on ``path`` is kept if it is interrupted."""
    return path.with_name(f".{path.name}{_UNFINISHED}")


def make_unfinished(path: Path) -> Path:
    """Make the folder of `unfinished_folder` unless it exists; `move_folder` moves it at the end.

    Raises:
        OSError: it cannot be written.
    """
    beside = unfinished_folder(path)
    _make_folders(path.parent)
    beside.mkdir(mode=0o777 & ~_withheld(path.parent), exist_ok=True)
    return beside


def unfinished_folders(folder: Path) -> list[Path]:
    """The folders of unfinished work in a folder and in the folders in it."""
    return sorted(path for path in folder.rglob(f".*{_UNFINISHED}") if path.is_dir())


def remove_unfinished(folder: Path) -> None:
    """Delete all unfinished work in a folder and in the folders in it."""
    for path in unfinished_folders(folder):
        shutil.rmtree(path, ignore_errors=True)


def remove_finished(folder: Path) -> None:
    """Delete everything in a folder, if it exists, but unfinished work."""
    kept = unfinished_folders(folder)
    for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder before the folder
        if any(path == one or path in one.parents or one in path.parents for one in kept):
            continue
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


def move_folder(beside: Path, path: Path) -> None:
    """Sync a folder to disk and give it the name ``path``; an existing folder is replaced.

    Raises:
        OSError: the folder cannot be written.
    """
    _settle(beside)
    if path.exists():
        shutil.rmtree(path)
    os.replace(beside, path)
    _sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Sync the content of a file to disk."""
    with path.open("rb") as opened:
        os.fsync(opened.fileno())


def _settle(folder: Path) -> None:
    """Give all files in a folder the folder's permissions, and sync them to disk."""
    mode = folder.stat().st_mode & 0o777
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(mode)
            _sync_folder(path)
        elif path.is_file():
            path.chmod(mode & 0o666)
            sync_file(path)
    _sync_folder(folder)


def _make_folders(folder: Path) -> None:
    """Make a folder and its parents, as private as the existing folder above them."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o777 & ~_withheld(folder.parent), exist_ok=True)
        _sync_folder(folder.parent)


def _withheld(folder: Path) -> int:
    """The permission bits that others do not get in ``folder``."""
    return 0 if folder.stat().st_mode & _OTHERS else _OTHERS


def _create(path: Path) -> IO[bytes]:
    """Open a new file. Replaces a leftover of the same name; does not follow symbolic links."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666 & ~_withheld(path.parent)), "wb")


def open_to_append(path: Path) -> IO[bytes]:
    """Open a file to append to. Creates a missing file; does not follow symbolic links.

    Raises:
        OSError: the file cannot be written, or is a symbolic link.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
    flags |= getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o666 & ~_withheld(path.parent)), "ab")


def _sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk, so that a rename survives a power failure."""
    with contextlib.suppress(OSError):  # not supported on Windows and some file systems
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def remove_leftovers(folder: Path) -> None:
    """Delete temporary files that a killed process has left in ``folder``."""
    for path in folder.glob(".*.part"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, atomically."""
    write_text(path, as_json(value))


def as_json(value: Any) -> str:
    """The text of a JSON file."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def cannot_write(path: Path, error: OSError) -> UserError:
    """The error for a failed write, with the file and the system's reason."""
    reason = error.strerror or str(error)
    return UserError(f"cannot write {path}: {reason}; free some space or choose another path")


def content_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, as hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
        UserError: it is not a regular file.
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
