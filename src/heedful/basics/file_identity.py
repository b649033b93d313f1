"""Hashes that identify data files: of all bytes, or of sampled blocks of a large file."""

import contextlib
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from heedful.basics.bounded_reading import open_regular

LARGE_FILE = 1 << 30
"""Bytes above which only blocks are read."""
_BLOCKS = 256
_BLOCK = 1 << 16
_PREFIX = "sampled:"
_whole: ContextVar[bool] = ContextVar("whole", default=False)


def file_identity(path: Path) -> str:
    """The SHA-256 of a file; of a file above 1 GiB, of its size and 256 blocks of 64 KiB.

    The blocks are spread evenly, and the first and the last are among them. A change that keeps the
    size and touches none of them is not noticed.

    Returns:
        Hexadecimal digits, after ``sampled:`` if only blocks were read.

    Raises:
        OSError: the file cannot be read.
        UserError: it is not a regular file.
    """
    with open_regular(path) as file:
        return stream_identity(file, file.seek(0, io.SEEK_END))


def stream_identity(file: IO[bytes], size: int) -> str:
    """The same as `file_identity` of an open file of ``size`` bytes that can be positioned."""
    if size > LARGE_FILE and not _whole.get():
        return _sampled(file, size)
    file.seek(0)
    found = hashlib.sha256()
    while block := file.read(_BLOCK << 4):
        found.update(block)
    return found.hexdigest()


def _sampled(file: IO[bytes], size: int) -> str:
    found = hashlib.sha256(f"{size}\n".encode())
    last = max(0, size - _BLOCK)
    for number in range(_BLOCKS):
        file.seek(number * last // (_BLOCKS - 1))
        found.update(file.read(_BLOCK))
    return _PREFIX + found.hexdigest()


@contextlib.contextmanager
def hashed_like(known: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Large files are read whole in this block unless one of the ``known`` hashes is of blocks.

    Runs of earlier versions have hashes of whole files.
    """
    sampled = any(one.startswith(_PREFIX) for hashes in known.values() for one in hashes)
    before = _whole.set(not sampled)
    try:
        yield
    finally:
        _whole.reset(before)
