"""Plain text: lines of one file, two aligned files, and TAB-separated pairs.

Only a line feed ends a line (a text may contain U+2028 or a vertical tab). A carriage return before
it belongs to the line end.
"""

import codecs
from collections import Counter
from collections.abc import Iterator
from itertools import chain, zip_longest

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.data.readers.opening import Input

FURTHER_COLUMNS = "lines' columns after the second"


def codec_name(encoding: str | None) -> str:
    """Python's name of an encoding; default: UTF-8, with or without a byte order mark.

    Raises:
        UserError: the encoding is unknown.
    """
    try:
        name = codecs.lookup(encoding or "utf-8").name
        "".encode(name)
    except LookupError as error:
        raise UserError(f"unknown encoding '{encoding}'; try utf-8, utf-16 or latin-1") from error
    return "utf-8-sig" if name == "utf-8" else name


def line_blocks(file: Input, encoding: str | None) -> Iterator[list[str]]:
    """The lines of a file, in blocks of the lines that are available without waiting for a pipe.

    Raises:
        UserError: a byte cannot be decoded, or compressed data is damaged.
    """
    name = codec_name(encoding)
    decoder = codecs.getincrementaldecoder(name)()
    done = 0
    rest = ""
    for chunk in chain(file.chunks(), [b""]):
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            line = 1 + done + error.object[: error.start].count(b"\n")
            raise bad_byte(file.name, line, error, encoding) from error
        lines = (rest + text).split("\n")
        rest = lines.pop()
        done += len(lines)
        if lines:
            yield [line.removesuffix("\r") for line in lines]
    if rest:
        yield [rest.removesuffix("\r")]


def bad_byte(name: str, line: int, error: UnicodeDecodeError, encoding: str | None) -> UserError:
    """The error for a byte that cannot be decoded."""
    byte = error.object[error.start]
    said = encoding or "UTF-8"
    return UserError(
        f"{name}:{line}: byte 0x{byte:02X} is not {said}; give the text's encoding (--encoding "
        "latin-1; for training --set data.encoding=latin-1, or tasks.NAME.data.encoding in a "
        "multi-task run) or convert it"
    )


def lines_of(file: Input, encoding: str | None) -> Iterator[str]:
    """The lines of a file."""
    return chain.from_iterable(line_blocks(file, encoding))


def read_aligned(first: Input, second: Input, encoding: str | None) -> Iterator[Pair]:
    """Read pairs from the lines of two files.

    Raises:
        UserError: the files have different numbers of lines; the message has both.
    """
    counts = [0, 0]
    for source, target in zip_longest(lines_of(first, encoding), lines_of(second, encoding)):
        counts[0] += source is not None
        counts[1] += target is not None
        if source is not None and target is not None:
            yield Pair(source, target)
    if counts[0] != counts[1]:
        raise UserError(
            f"{first.name}:{min(counts) + 1}: {first.name} has {counts[0]} lines but {second.name} "
            f"has {counts[1]}; the two must be aligned line by line"
        )


def read_tsv(file: Input, encoding: str | None, left_out: Counter[str]) -> Iterator[Pair]:
    """Read pairs from ``source TAB target`` lines; further columns are ignored and counted.

    Raises:
        UserError: a line has no TAB.
    """
    for number, line in enumerate(lines_of(file, encoding), start=1):
        columns = line.split("\t", 2)
        if len(columns) == 1:
            raise UserError(
                f"{file.name}:{number}: no TAB in this line; a single file is TSV (source TAB "
                "target), TMX, PO or XLIFF; for plain text give two aligned files"
            )
        if len(columns) > 2:
            left_out[FURTHER_COLUMNS] += 1
        yield Pair(columns[0], columns[1])
