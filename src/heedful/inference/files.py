"""Translation of text files line by line; opening of output files."""

import contextlib
import gzip
import json
import os
import re
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, is_device
from heedful.basics.notices import notice, summed
from heedful.data.memory import Memory
from heedful.data.readers import read_line_blocks
from heedful.data.readers.opening import STANDARD_INPUT
from heedful.decoding import SearchOptions
from heedful.inference.line_input import source_blocks
from heedful.inference.line_windows import WINDOW, windows
from heedful.inference.memory_first import translate_with_memory
from heedful.inference.translation import Translation
from heedful.inference.translation_window import Advance
from heedful.inference.translator import Translator

_LINE_BREAK = re.compile(r"\r\n|[\r\n]")
# A program that writes to a pipe may need a moment between its writes.
_PATIENCE_SECONDS = 0.05


@dataclass(frozen=True)
class LineFormat:
    """The format of a line of output."""

    json: bool = False
    """Write a JSON object for each input instead of the text."""
    scores: bool = False
    """Write a TAB and the score after the text."""


def translate_lines(
    translator: Translator,
    path: str,
    output: Path | None,
    *,
    options: SearchOptions,
    line_format: LineFormat,
    encoding: str | None = None,
    tsv: bool = False,
    wary: bool = False,
    alignments: Path | None = None,
    memory: Memory | None = None,
    advance: Advance | None = None,
) -> None:
    """Translate a text file, or standard input (``-``), line by line.

    Args:
        translator: the predictor.
        path: a text file, plain, gzip or xz.
        output: a file, written atomically; standard output if None, which is flushed whenever no
            further input is waiting.
        options: search settings.
        line_format: the format of a line of output.
        encoding: of the file; UTF-8 by default.
        tsv: translate only the first column; lines with more columns are counted in a notice.
        wary: raise an error for a PO, XLIFF or TMX file.
        alignments: a file for word alignments in Pharaoh format, one line per input.
        memory: exact matches are taken from it; they have no scores and no alignments.
        advance: called with progress.

    Raises:
        UserError: the input cannot be read or the output cannot be written.
    """
    wanted = alignments is not None or (line_format.json and translator.aligns)
    blocks = line_windows(path, encoding=encoding, tsv=tsv, wary=wary)
    found = translate_with_memory(
        translator,
        memory or Memory(),
        blocks,
        options=options,
        scores=line_format.json or line_format.scores,
        alignments=wanted,
        advance=advance,
    )
    with _opened_alignments(alignments) as links:

        def lines() -> Iterator[list[str]]:
            for window in found:
                if links is not None:
                    for one in window:
                        if one.alignment is not None:
                            links.write(one.alignment.pharaoh().encode() + b"\n")
                yield [line_of(one, line_format) for one in window]

        write_lines(lines(), output, "translation")


def line_windows(
    path: str,
    *,
    encoding: str | None = None,
    tsv: bool = False,
    wary: bool = False,
    size: int = WINDOW,
) -> Iterator[list[str]]:
    """The lines of a file, or of standard input, in windows that are batched together.

    From a pipe, a window ends when no more input is waiting. For the options see
    :func:`heedful.inference.line_input.source_blocks`.

    Raises:
        UserError: the input cannot be read.
    """
    blocks = source_blocks(path, encoding=encoding, tsv=tsv, wary=wary)
    return windows(blocks, size, more_waits=_more_waits(path))


def write_lines(windows: Iterable[Iterable[str]], output: Path | None, noun: str) -> None:
    """Write each answer as one line. Line breaks become spaces and are counted in a notice.

    Notices with counts are for all windows together.

    Args:
        windows: the answers, written and flushed window by window.
        output: a file, written atomically; standard output if None.
        noun: the word for an answer in the notice.

    Raises:
        UserError: the output cannot be written.
    """
    breaks = 0
    with summed(), opened_output(output) as lines:
        for window in windows:
            for line in window:
                whole = without_breaks(line)
                breaks += whole != line
                lines.write(whole.encode() + b"\n")
            lines.flush()
    notice_breaks(breaks, noun)


def without_breaks(line: str) -> str:
    """A line with its inner line breaks as spaces."""
    return _LINE_BREAK.sub(" ", line)


def notice_breaks(count: int, noun: str, hint: str = " (--json keeps it)") -> None:
    """Print a notice with the number of answers that had a line break, if there are any."""
    if count:
        notice(
            f"{count:,} {noun}{'s' if count > 1 else ''} had a line break inside; it was "
            f"written as a space{hint}"
        )


def check_output(path: Path | None) -> None:
    """Check in advance that a file can be written.

    Raises:
        UserError: ``path`` is a folder, or its folder is not writable.
    """
    if path is None or (is_device(path) and os.access(path, os.W_OK)):
        return
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder; give a file's name")
    there = next((folder for folder in path.absolute().parents if folder.exists()), None)
    if there is None or not there.is_dir() or not os.access(there, os.W_OK):
        raise UserError(f"cannot write {path}: no permission to write in {there}; choose another")


def count_lines(path: str) -> int | None:
    """The number of lines of a regular file, for progress; None for a pipe."""
    if path == STANDARD_INPUT or not Path(path).is_file():
        return None
    return sum(len(block) for block in read_line_blocks(path))


def line_of(one: Translation, line_format: LineFormat) -> str:
    """A translation in the format of the output; it may have line breaks."""
    if line_format.json:
        return json.dumps(one.to_json(), ensure_ascii=False)
    return f"{one.text}\t{one.score:.4f}" if line_format.scores else one.text


@contextlib.contextmanager
def opened_output(output: Path | None, *, compresses: bool = False) -> Iterator[IO[bytes]]:
    """A file that is written atomically; standard output if None.

    Args:
        output: the file.
        compresses: whether it is compressed if its name ends in ``.gz``.
    """
    if output is None:
        yield sys.stdout.buffer
        return
    with atomic_file(output) as file:
        if not compresses or output.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
            yield cast(IO[bytes], packed)


@contextlib.contextmanager
def _opened_alignments(path: Path | None) -> Iterator[IO[bytes] | None]:
    if path is None:
        yield None
        return
    with atomic_file(path) as file:
        yield file


def _more_waits(path: str) -> Callable[[], bool] | None:
    """A function that returns whether standard input has more to read; None for other files."""
    if path != STANDARD_INPUT:
        return None
    try:
        number = sys.stdin.fileno()
        if stat.S_ISREG(os.fstat(number).st_mode):
            return None
    except (OSError, ValueError):
        return None

    def more_waits() -> bool:
        try:
            return bool(select.select([number], [], [], _PATIENCE_SECONDS)[0])
        except (OSError, ValueError):
            return False  # Windows cannot poll a pipe: every block is then answered at once.

    return more_waits
