"""Plain text, divided into documents."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from heedful.basics.errors import UserError
from heedful.data.readers.folders import files_in, text_files
from heedful.data.readers.opening import Input, open_input
from heedful.data.readers.text import codec_name, lines_of
from heedful.data.sentences import SentenceFailures, split_into_sentences

_POINT, _HELD = "@.@", "@\ufdd1@"

DocumentRule = Literal["blank-lines", "wikitext", "lines", "whole"]

_TITLE = re.compile(r"= [^=].* =|= [^=] =")
"""`` = Title = ``, but not the heading of a section, `` = = Section = = ``. Keys of tables look so
too (``W = Won , D = ``): a title is between two blank lines."""


def read_documents(
    paths: Sequence[str | Path] | str | Path,
    *,
    document: DocumentRule = "blank-lines",
    blank_lines: bool = False,
    sentences: str | None = None,
    encoding: str | None = None,
) -> Iterator[list[str]]:
    """Stream documents as lists of lines; a document never spans two files.

    Args:
        paths: plain, gzip or xz; ``-`` is standard input; a folder, a pattern or a URL stands for
            all of its files.
        document: what separates documents: ``blank-lines``; titles of ``wikitext`` (`` = Title =
            ``), each the first line of a document; every line (``lines``); or nothing (``whole``).
        blank_lines: for ``wikitext`` and ``whole``, keep blank lines; the lines joined by line
            feeds are then the exact text of the file.
        sentences: a language code; lines are split into sentences by the rules of this language,
            and white space around sentences is removed.
        encoding: encoding of the files; default: UTF-8.

    Raises:
        UserError: a file is missing, damaged or has no text, or a byte cannot be decoded.
    """
    if document not in get_args(DocumentRule):
        known = ", ".join(get_args(DocumentRule))
        raise UserError(f"unknown rule for documents '{document}'; known are {known}")
    codec_name(encoding)
    failures = SentenceFailures()
    for path in files_in([paths] if isinstance(paths, str | Path) else paths, text_files):
        with open_input(path) as file:
            found = False
            for lines in _documents(file, document, blank_lines, encoding):
                if any(map(str.strip, lines)):
                    found = True
                    if sentences is not None:
                        lines = split_sentences(lines, sentences, failures)
                    yield lines
            if not found:
                raise UserError(f"{file.name}: the file has no text to train on")
    failures.report()


def split_sentences(
    lines: Sequence[str], language: str, failures: SentenceFailures | None = None
) -> list[str]:
    """Split lines into sentences by the rules of a language; blank lines are kept.

    Args:
        lines: of any text.
        language: see `heedful.data.sentences.split_into_sentences`.
        failures: likewise.

    Example:
        >>> split_sentences(["It is 0 @.@ 7 cm . Mr. Smith sat ."], "en")
        ['It is 0 @.@ 7 cm .', 'Mr. Smith sat .']
    """
    cut: list[str] = []
    for line in lines:
        # WikiText writes 1.5 as "1 @.@ 5": no sentence ends there.
        parts = split_into_sentences(line.replace(_POINT, _HELD), language, failures)
        found = [part.strip().replace(_HELD, _POINT) for part in parts if part.strip()]
        cut.extend(found or [line])
    return cut


def _documents(
    file: Input, document: DocumentRule, blank_lines: bool, encoding: str | None
) -> Iterator[list[str]]:
    """All documents, including empty ones."""
    lines: list[str] = []
    keep_blank = blank_lines and document in ("wikitext", "whole")
    for before, line, after in _with_neighbours(lines_of(file, encoding)):
        if document == "blank-lines":
            begins = not line.strip()
        elif document == "wikitext":
            is_title = _TITLE.fullmatch(line.strip()) is not None
            begins = is_title and not before.strip() and not after.strip()
        else:
            begins = document == "lines"
        if begins and lines:
            yield lines
            lines = []
        if keep_blank or line.strip():
            lines.append(line)
    yield lines


def _with_neighbours(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """Each line with the previous and next line; empty lines at the ends."""
    before, line = "", next(lines, None)
    while line is not None:
        after = next(lines, None)
        yield before, line, after or ""
        before, line = line, after
