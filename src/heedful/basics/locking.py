"""A folder for one process at a time."""

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
    """Hold ``folder``, which exists, for this process while the block runs.

    The system lets the lock go when the process ends, however that happens. Where files cannot be
    locked (Windows, some network file systems), there is no lock, and a notice says so.

    Args:
        folder: what is held, by a file ``.lock`` in it.
        doing: what this process does with it, for the other's error: "trained".

    Raises:
        UserError: another process holds the folder; it is named.
    """
    path = folder / LOCK
    try:
        file = _acquire(path)
    except BlockingIOError as error:
        raise UserError(
            f"{folder} is being {doing} by {_holder(path)}; wait until it has ended, stop it, or "
            "choose another folder"
        ) from error
    try:
        yield
    finally:
        if file is not None:
            # While it is still held: who opens the file after this makes a new one.
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(file)


def _acquire(path: Path) -> int | None:
    while True:
        try:
            # A link is not followed: what it leads to would be overwritten.
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
            notice(f"{path.parent} cannot be locked ({error.strerror}): use it from one process")
            return None
        if _is_at(path, file):
            with contextlib.suppress(OSError):  # a full disk: the lock holds without a name
                os.ftruncate(file, 0)
                os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            return file
        os.close(file)  # its holder deleted it in between: what was locked is no file any more


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: int) -> None:
    if fcntl is None:
        raise OSError(0, "this system has no such locks")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError), open_regular(path) as file:
        return file.read(200).decode("utf-8", "replace").strip() or "another process"
    return "another process"
