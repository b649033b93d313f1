"""Read a file or standard input, plain, gzip or xz; messages have file and line."""

import contextlib
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from heedful.basics.errors import UserError
from heedful.basics.urls import url_of
from heedful.data.remote_files import open_remote, read_stream

STANDARD_INPUT = "-"
CHUNK = 1 << 16
GZIP_MAGIC = b"\x1f\x8b"
XZ_MAGIC = b"\xfd7zXZ\0"


class Input:
    """An opened corpus: a stream of its bytes, as soon as they are available.

    Args:
        stream: the uncompressed bytes.
        name: the name in messages.
        packing: the compression, for messages.
    """

    def __init__(self, stream: io.BufferedIOBase, name: str, packing: str = "gzip") -> None:
        self.name = name
        self.line = 1
        self._packing = packing
        self._stream = stream
        self._head = b""

    def head(self) -> bytes:
        """Up to 64 KiB from the beginning; `chunks` returns them again."""
        while len(self._head) < CHUNK:
            block = self._read()
            if not block:
                break
            self._head += block
        return self._head

    def chunks(self) -> Iterator[bytes]:
        """All bytes in blocks; ``line`` is the number of the next line."""
        if self._head:
            head, self._head = self._head, b""
            yield head
            self.line += head.count(b"\n")
        while block := self._read():
            yield block
            self.line += block.count(b"\n")

    def _read(self) -> bytes:
        # read1 returns what a pipe has now; read would wait until the block is full.
        try:
            return self._stream.read1(CHUNK)
        except EOFError as error:
            raise UserError(
                f"{self._place()} data end unexpectedly here; copy or download the file again"
            ) from (error)
        except (zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise UserError(
                f"{self._place()} data are damaged here ({error}); copy or download the file again"
            ) from error
        except OSError as error:
            raise _cannot_read(self.name, error) from error

    def _place(self) -> str:
        return f"{self.name}:{self.line}: the {self._packing}"


@contextlib.contextmanager
def open_input(path: str | Path) -> Iterator[Input]:
    """Open a file, or standard input for ``-``, and decompress gzip and xz by content.

    Raises:
        UserError: the file is missing or cannot be read.
    """
    with contextlib.ExitStack() as stack:
        if str(path) == STANDARD_INPUT:
            name = "standard input"
            raw = _buffered(sys.stdin.buffer)
            # Closing our buffer must not close the process's standard input.
            stack.callback(_let_go, raw)
        else:
            url = url_of(path)
            name = str(path) if url is None else url
            try:
                if url is not None:
                    raw = stack.enter_context(read_stream(open_remote(url), url))
                else:
                    raw = stack.enter_context(Path(path).open("rb"))
            except OSError as error:
                raise _cannot_read(name, error) from error
        stream: io.BufferedIOBase = raw
        magic = raw.peek(len(XZ_MAGIC))
        if magic.startswith(GZIP_MAGIC):
            stream = stack.enter_context(gzip.GzipFile(fileobj=raw, mode="rb"))
        elif magic.startswith(XZ_MAGIC):
            stream = stack.enter_context(lzma.LZMAFile(raw))
        yield Input(stream, name, "xz" if magic.startswith(XZ_MAGIC) else "gzip")


def _buffered(stream: BinaryIO) -> io.BufferedReader:
    if isinstance(stream, io.BufferedReader):
        return stream
    return io.BufferedReader(cast(io.BufferedIOBase, stream))


def _let_go(stream: io.BufferedReader) -> None:
    if stream is not sys.stdin.buffer and not stream.closed:
        stream.detach()


def _cannot_read(name: str, error: OSError) -> UserError:
    return UserError(
        f"cannot read {name}: {error.strerror or error}; check the path and its permissions"
    )
