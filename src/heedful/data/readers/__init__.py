"""Corpora in any format: the format is detected by content, and errors name file and line."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import Pair
from heedful.data.readers.folders import bilingual_files, is_folder, is_pattern
from heedful.data.readers.kinds import Kind, find_kind
from heedful.data.readers.labelled import read_labelled, read_texts
from heedful.data.readers.opening import STANDARD_INPUT, Input, open_input
from heedful.data.readers.plain import read_documents
from heedful.data.readers.po import read_po
from heedful.data.readers.tagged import read_tagged
from heedful.data.readers.text import codec_name, line_blocks, read_aligned, read_tsv
from heedful.data.readers.tmx import read_tmx
from heedful.data.readers.xliff import read_xliff

__all__ = [
    "has_contexts",
    "read_documents",
    "read_labelled",
    "read_line_blocks",
    "read_lines",
    "read_pairs",
    "read_tagged",
    "read_texts",
    "report_left_out",
]

READERS = {Kind.TMX: read_tmx, Kind.XLIFF: read_xliff, Kind.PO: read_po}


def read_pairs(
    paths: Sequence[str | Path],
    *,
    source: str | None = None,
    target: str | None = None,
    encoding: str | None = None,
    left_out: Counter[str] | None = None,
) -> Iterator[Pair]:
    """Stream the pairs of a corpus.

    Args:
        paths: one TSV, TMX, PO or XLIFF file, a folder of such files, or two aligned text files;
            plain, gzip or xz; ``-`` is standard input.
        source: source language, for files that declare languages; ``en`` matches ``en-US``.
        target: target language, in the same way.
        encoding: encoding of the text; default: UTF-8, or what an XML or PO file declares.
        left_out: counts skipped pairs by reason; without it, a notice has the counts.

    Raises:
        UserError: a file is missing, invalid or lacks the language; the message has file and line.
    """
    counts: Counter[str] = Counter() if left_out is None else left_out
    codec_name(encoding)
    if isinstance(paths, str | Path):
        paths = [paths]
    if any(map(is_pattern, paths)) or (len(paths) == 1 and is_folder(paths[0])):
        how = {"source": source, "target": target, "encoding": encoding}
        for together in _together(paths):
            yield from read_pairs(together, **how, left_out=counts)
        if left_out is None:
            report_left_out(counts, " and ".join(map(str, paths)))
        return
    with ExitStack() as stack:
        files = _open_all(paths, stack)
        if len(files) == 2:
            for file in files:
                _want_text(file, encoding)
            yield from read_aligned(files[0], files[1], encoding)
        else:
            file = files[0]
            kind = find_kind(file.head(), file.name, encoding)
            if kind is Kind.TEXT:
                yield from read_tsv(file, encoding, counts)
            else:
                yield from READERS[kind](file, source, target, encoding, counts)
        if left_out is None:
            report_left_out(counts, " and ".join(file.name for file in files))


def has_contexts(path: str | Path) -> bool:
    """Whether the units of a file, or of the files in a folder, may have contexts.

    Raises:
        UserError: the file is missing or cannot be read.
    """
    if is_folder(path):
        return any(map(has_contexts, bilingual_files(path)))
    with open_input(path) as file:
        return find_kind(file.head(), file.name, None) in (Kind.PO, Kind.XLIFF)


def read_lines(path: str | Path, encoding: str | None = None) -> Iterator[str]:
    """Stream the lines of a text file, plain, gzip or xz, or of standard input (``-``).

    Only a line feed ends a line; one carriage return before it is dropped.

    Raises:
        UserError: the file cannot be read or decoded; the message has file and line.
    """
    for block in read_line_blocks(path, encoding):
        yield from block


def read_line_blocks(path: str | Path, encoding: str | None = None) -> Iterator[list[str]]:
    """The same as `read_lines`, in blocks of the lines that are available without waiting."""
    with open_input(path) as file:
        yield from line_blocks(file, encoding)


def report_left_out(left_out: Counter[str], where: str) -> None:
    """Give a notice with the counts of skipped items by reason, if there are any."""
    if left_out.total():
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
        notice(f"left out of {where}: {reasons}")


def _together(paths: Sequence[str | Path]) -> Iterator[tuple[Path, ...]]:
    """The files of a folder or a pattern, or those of two patterns side by side.

    Raises:
        UserError: one of two is not a pattern, or they stand for different numbers of files.
    """
    if len(paths) == 1:
        return ((file,) for file in bilingual_files(paths[0]))
    if len(paths) == 2 and all(map(is_pattern, paths)):
        first, second = map(bilingual_files, paths)
        if len(first) == len(second):
            return zip(first, second, strict=True)
        raise UserError(
            f"{paths[0]} stands for {len(first)} files but {paths[1]} for {len(second)}; aligned "
            "texts need as many files on both sides"
        )
    raise UserError(
        f"{' and '.join(map(str, paths))}: give one folder, one pattern, or two patterns for "
        "aligned texts"
    )


def _open_all(paths: Sequence[str | Path], stack: ExitStack) -> list[Input]:
    if isinstance(paths, str | Path):
        paths = [paths]
    if len(paths) not in (1, 2):
        raise UserError(
            f"{len(paths)} files given; give one TSV, TMX, PO or XLIFF file, a folder of "
            "them, or two aligned texts"
        )
    if [str(path) for path in paths].count(STANDARD_INPUT) == 2:
        raise UserError("standard input cannot be both files; give one of them by its path")
    return [stack.enter_context(open_input(path)) for path in paths]


def _want_text(file: Input, encoding: str | None) -> None:
    kind = find_kind(file.head(), file.name, encoding)
    if kind is not Kind.TEXT:
        raise UserError(f"{file.name} is {kind.value}; give such a file alone, not as one of two")
