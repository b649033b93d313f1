"""Writes pairs to TSV or to two aligned text files, atomically."""

import gzip
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.data.examples import Pair

Breaks = Literal["space", "leave-out"]
# Characters that would end a line or a column, or that would be read as part of a line end.
NOT_IN_LINES = re.compile(r"[\n\r]+")
NOT_IN_COLUMNS = re.compile(r"[\t\n\r]+")


class PairWriter:
    """Writes pairs to one TSV file or two aligned files; use it in a ``with`` block.

    A text with a line break (or, in TSV, a TAB) does not fit on a line: these characters become a
    space, or the pair is skipped. Both are counted in ``changed``.

    Args:
        paths: one path for TSV, two for aligned files; compressed if the name ends in ``.gz``;
            ``-`` is standard output.
        breaks: how to handle texts that do not fit on a line.

    Raises:
        UserError: there are not one or two paths, or a file cannot be written.
    """

    def __init__(self, paths: Sequence[Path], breaks: Breaks = "space") -> None:
        if len(paths) not in (1, 2) or len(set(paths)) != len(paths):
            raise UserError("give one output for TSV, or two different outputs for aligned texts")
        self.changed: Counter[str] = Counter()
        self.written = 0
        self._paths = paths
        self._breaks = breaks
        self._forbidden = NOT_IN_COLUMNS if len(paths) == 1 else NOT_IN_LINES
        self._what = "TABs or line breaks" if len(paths) == 1 else "line breaks"
        self._stack = ExitStack()
        self._files: list[IO[bytes] | gzip.GzipFile] = []

    def __enter__(self) -> "PairWriter":
        with ExitStack() as stack:
            self._files = [_open(path, stack) for path in self._paths]
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def write(self, pair: Pair) -> None:
        """Write a pair, or skip and count it."""
        if any(self._forbidden.search(text) for text in pair):
            if self._breaks == "leave-out":
                self.changed[f"with {self._what}"] += 1
                return
            self.changed[f"with {self._what}, which became spaces"] += 1
            pair = Pair(*(self._forbidden.sub(" ", text) for text in pair))
        self.written += 1
        if len(self._files) == 1:
            self._files[0].write(f"{pair.source}\t{pair.target}\n".encode())
        else:
            for file, text in zip(self._files, pair, strict=True):
                file.write(f"{text}\n".encode())


def write_pairs(
    pairs: Iterable[Pair], paths: Sequence[Path], breaks: Breaks = "space"
) -> PairWriter:
    """Write all pairs; the returned writer has the counts."""
    with PairWriter(paths, breaks) as writer:
        for pair in pairs:
            writer.write(pair)
    return writer


def _open(path: Path, stack: ExitStack) -> IO[bytes] | gzip.GzipFile:
    if str(path) == "-":
        stack.callback(sys.stdout.buffer.flush)
        return sys.stdout.buffer
    file = stack.enter_context(atomic_file(path))
    if path.suffix == ".gz":
        # No name and no time inside, so that equal pairs give equal files.
        packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        stack.callback(packed.close)
        return packed
    return file
