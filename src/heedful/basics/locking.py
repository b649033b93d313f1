"""Locks on folders: one process at a time."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from heedful.basics.bounded_reading import open_regular
from heedful.basics.errors import UserError
from heedful.basics.files import cannot_write
from heedful.basics.notices import notice

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


@contextlib.contextmanager
def locked(folder: Path, doing: str) -> Iterator[None]:
    """Lock an existing folder for this process while the block runs.

    The operating system releases the lock when the process ends, however it ends. If files cannot
    be locked (Windows, some network file systems), nothing is locked and a notice is printed.

    Args:
        folder: the folder; its lock is the file ``.lock`` in it.
        doing: what this process does with it, for the error in other processes: "trained".

    Raises:
        UserError: another process has locked the folder; the message names it.
    """
    path = folder / LOCK
    try:
        file = _acquire(path)
    except BlockingIOError as error:
        raise UserError(
            f"{folder} is being {doing} by {_holder(path)}; wait until that process ends, stop "
            "it, or choose another folder"
        ) from error
    try:
        yield
    finally:
        if file is not None:
            # Delete the file while it is locked; the next process creates a new one.
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(file)


@contextlib.contextmanager
def waiting(folder: Path) -> Iterator[None]:
    """Let other processes that call this with the same folder wait while the block runs.

    For short changes of files; :func:`locked` is independent of it. If folders cannot be locked
    (Windows, some network file systems), nothing is locked.

    Args:
        folder: an existing folder. No file is written.
    """
    opened = None
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        _lock(opened, wait=True)
    try:
        yield
    finally:
        if opened is not None:
            os.close(opened)


def _acquire(path: Path) -> int | None:
    while True:
        try:
            # Do not follow a symbolic link: its target would be overwritten.
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            file = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            _lock(file)
        except BlockingIOError:
            os.close(file)
            raise
        except OSError as error:
            os.close(file)
            notice(
                f"{path.parent} cannot be locked ({error.strerror}): do not use it from two "
                "processes at once"
            )
            return None
        if _is_at(path, file):
            with contextlib.suppress(OSError):  # full disk: the lock is valid without the name
                os.ftruncate(file, 0)
                os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            return file
        os.close(file)  # deleted by its holder meanwhile: the locked file no longer exists


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: int, wait: bool = False) -> None:
    if fcntl is None:
        raise OSError(0, "this system has no file locks")
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError), open_regular(path) as file:
        return file.read(200).decode("utf-8", "replace").strip() or "another process"
    return "another process"
