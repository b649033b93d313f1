"""Running text, cut into documents."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from heedful.basics.errors import UserError
from heedful.data.readers.opening import Input, open_input
from heedful.data.readers.text import codec_name, lines_of
from heedful.data.sentences import SentenceFailures, cut_into_sentences

_POINT, _HELD = "@.@", "@\ufdd1@"

DocumentRule = Literal["blank-lines", "wikitext", "lines", "whole"]

_TITLE = re.compile(r"= [^=].* =|= [^=] =")
"""`` = Title = ``, but not the heading of a section, `` = = Section = = ``. Keys of tables look so
too (``W = Won , D = ``): a title stands between two blank lines."""


def read_documents(
    paths: Sequence[str | Path] | str | Path,
    *,
    document: DocumentRule = "blank-lines",
    blank_lines: bool = False,
    sentences: str | None = None,
    encoding: str | None = None,
) -> Iterator[list[str]]:
    """Stream the documents of plain texts, each as its lines; no document goes over a file's end.

    Args:
        paths: plain, gzip or xz; ``-`` is standard input.
        document: what parts documents: ``blank-lines``; the titles of ``wikitext``
            (`` = Title = ``), each the first line of its document; every one of the ``lines`` is
            one; or nothing, the ``whole`` file is one.
        blank_lines: of ``wikitext`` and ``whole``, keep lines of white space only; joined by line
            feeds, the lines of a document are then the text as it stands in the file.
        sentences: a language code, by whose rules each line is cut into sentences, which take the
            place of the lines (white space around them is left out).
        encoding: UTF-8 by default.

    Raises:
        UserError: a file is missing, broken or without text; a byte is not text.
    """
    if document not in get_args(DocumentRule):
        known = ", ".join(get_args(DocumentRule))
        raise UserError(f"unknown rule for documents '{document}'; known are {known}")
    codec_name(encoding)
    failures = SentenceFailures()
    for path in [paths] if isinstance(paths, str | Path) else paths:
        with open_input(path) as file:
            found = False
            for lines in _documents(file, document, blank_lines, encoding):
                if any(map(str.strip, lines)):
                    found = True
                    if sentences is not None:
                        lines = cut_sentences(lines, sentences, failures)
                    yield lines
            if not found:
                raise UserError(f"{file.name}: the file has no text to train on")
    failures.tell()


def cut_sentences(
    lines: Sequence[str], language: str, failures: SentenceFailures | None = None
) -> list[str]:
    """The sentences of lines, by a language's rules; a line of white space only, as it is.

    Args:
        lines: of any text.
        language: see `heedful.data.sentences.cut_into_sentences`.
        failures: likewise.

    Example:
        >>> cut_sentences(["It is 0 @.@ 7 cm . Mr. Smith sat ."], "en")
        ['It is 0 @.@ 7 cm .', 'Mr. Smith sat .']
    """
    cut: list[str] = []
    for line in lines:
        # WikiText writes 1.5 as "1 @.@ 5": no sentence ends there.
        parts = cut_into_sentences(line.replace(_POINT, _HELD), language, failures)
        found = [part.strip().replace(_HELD, _POINT) for part in parts if part.strip()]
        cut.extend(found or [line])
    return cut


def _documents(
    file: Input, document: DocumentRule, blank_lines: bool, encoding: str | None
) -> Iterator[list[str]]:
    """Documents, empty ones among them."""
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
    """Each line with the lines before and after it; beyond the ends there are empty ones."""
    before, line = "", next(lines, None)
    while line is not None:
        after = next(lines, None)
        yield before, line, after or ""
        before, line = line, after
