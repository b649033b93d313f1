"""Lines to translate, from text files, TSV and pipes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.readers import read_line_blocks
from heedful.data.readers.kinds import Kind, find_kind
from heedful.data.readers.opening import STANDARD_INPUT


def is_tsv(path: str) -> bool:
    """Whether a file is TSV (``source TAB target``) by its name."""
    return path.casefold().removesuffix(".gz").removesuffix(".xz").endswith(".tsv")


def source_blocks(
    path: str, *, encoding: str | None = None, tsv: bool = False, wary: bool = False
) -> Iterator[list[str]]:
    """The lines of a text file, or of standard input (``-``), as they come; as many as it has.

    Args:
        path: text, plain, gzip or xz.
        encoding: UTF-8 by default.
        tsv: use the text before the first TAB; lines with more columns are counted in a notice.
        wary: raise an error for a PO, XLIFF or TMX file.

    Raises:
        UserError: the input cannot be read, or is such a file.
    """
    name = "standard input" if path == STANDARD_INPUT else path
    more = 0
    for block in read_line_blocks(path, encoding):
        if wary:
            _require_text(block, name)
            wary = False
        if tsv:
            more += sum("\t" in line for line in block)
            block = [line.partition("\t")[0] for line in block]
        yield block
    if more:
        notice(f"{name}: only the first column is translated; {more:,} lines have more columns")


def _require_text(block: list[str], name: str) -> None:
    kind = Kind.TEXT
    with contextlib.suppress(UserError):  # other XML is treated as lines of text
        kind = find_kind("\n".join(block).encode("utf-8", "replace"), Path(name).name)
    if kind is not Kind.TEXT:
        option = kind.value.lower()
        raise UserError(
            f"{name} looks like {kind.value}: give --format {option} to translate it as a "
            "document, or --format lines to translate it line by line"
        )
