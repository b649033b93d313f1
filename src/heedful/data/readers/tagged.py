"""Sentences with tagged words: CoNLL-U, CoNLL-2003, two columns, JSON lines."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.data.examples import Tagged
from heedful.data.readers.kinds import extension
from heedful.data.readers.labelled import FORMATS, field, json_objects, nearest
from heedful.data.readers.opening import Input, open_input
from heedful.data.readers.text import codec_name, lines_of
from heedful.data.subwords import refuse_surrogates

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""Columns of CoNLL-U (universaldependencies.org/format.html)."""

COLUMNS_2003 = ("form", "pos", "chunk", "ner")
"""Columns of CoNLL-2003 (Tjong Kim Sang and De Meulder 2003)."""

_WITH_ATTRIBUTES = ("feats", "misc")
"""Columns with ``Name=Value`` pairs."""

_MAY_BE_NOTHING = ("lemma", "feats", "deps", "misc")
"""Columns in which ``_`` means that an annotated word has no value, or is the word itself."""


def read_tagged(
    paths: Sequence[str | Path] | str | Path,
    *,
    column: str = "upos",
    encoding: str | None = None,
) -> Iterator[Tagged]:
    """Stream the tagged sentences of files.

    Formats: CoNLL-U (ten columns; the words of ranges such as ``3-4`` are read, but ranges and
    empty nodes such as ``5.1`` are not words; comments are skipped); CoNLL-2003 (four
    columns, separated by spaces or TABs; ``-DOCSTART-`` lines are skipped); ``word TAB tag`` with
    an empty line after each sentence; JSON lines with the lists ``words`` (or ``tokens``) and
    ``column`` (or ``tags``).

    Args:
        paths: plain, gzip or xz; ``-`` is standard input.
        column: the column of CoNLL-U, or the list of JSON lines, with the tags; ``misc.NER`` is the
            value of ``NER`` in the column ``misc``, or ``_``. For CoNLL-2003: ``pos``, ``chunk`` or
            ``ner``, which is also the meaning of ``upos``.
        encoding: encoding of the files; default: UTF-8.

    Raises:
        UserError: a file is missing or invalid, a word has no tag, the numbers of words and tags
            differ, or a byte cannot be decoded. The message has file and line.
    """
    codec_name(encoding)
    for path in [paths] if isinstance(paths, str | Path) else paths:
        with open_input(path) as file:
            head = file.head().lstrip(b"\xef\xbb\xbf")
            if FORMATS.get(extension(file.name)) == "jsonl" or head.startswith(b"{"):
                yield from _json_lines(file, column, encoding)
            else:
                yield from _columns(file, column, encoding)


def _columns(file: Input, column: str, encoding: str | None) -> Iterator[Tagged]:
    words: list[str] = []
    tags: list[str] = []
    width = sentences = 0
    for number, line in enumerate(chain(lines_of(file, encoding), [""]), start=1):
        where = f"{file.name}:{number}"
        if not line.strip():
            if words:
                sentences += 1
                yield Tagged(tuple(words), tuple(tags))
            words, tags = [], []
            continue
        parts = _parts(line, width)
        if line.startswith("#") and len(parts) != (width or 2):
            continue
        width = width or _width(parts, where)
        if len(parts) != width:
            raise UserError(
                f"{where}: columns: {len(parts)}, but {width} before; write each word with its tag "
                "on its own line, and an empty line between sentences"
            )
        found: tuple[str, str] | None = (parts[0], parts[1])
        if width == len(COLUMNS):
            found = _row(parts, len(words), column, where)
        elif width == len(COLUMNS_2003):
            found = _row_2003(parts, column, where)
        if found is not None:
            _check_word(*found, "tag" if width == 2 else column, where)
            words.append(found[0])
            tags.append(found[1])
    if not sentences:
        raise UserError(f"{file.name}: no sentence in the file; there is nothing to train on")


def _parts(line: str, width: int) -> list[str]:
    """Split a line into columns, at TABs or, for CoNLL-2003, at spaces."""
    parts = line.split("\t")
    if len(parts) == 1 and width in (0, len(COLUMNS_2003)):
        spaced = line.split()
        return spaced if len(spaced) == len(COLUMNS_2003) else parts
    return parts


def _width(parts: Sequence[str], where: str) -> int:
    if len(parts) not in (2, len(COLUMNS_2003), len(COLUMNS)):
        raise UserError(
            f"{where}: {len(parts)} TAB-separated columns; tagged sentences are CoNLL-U (10 "
            "columns), CoNLL-2003 (4 columns), or word TAB tag, or JSON lines"
        )
    return len(parts)


def _row(parts: Sequence[str], before: int, column: str, where: str) -> tuple[str, str] | None:
    """Parse a line of CoNLL-U; None if it is not a word."""
    column, _, attribute = column.partition(".")
    if column not in COLUMNS[2:]:
        raise UserError(f"CoNLL-U has no column of tags '{column}'; {nearest(column, COLUMNS[2:])}")
    if attribute and column not in _WITH_ATTRIBUTES:
        raise UserError(
            f"the column {column} of CoNLL-U has no attributes such as '{attribute}'; "
            f"{' and '.join(_WITH_ATTRIBUTES)} have some"
        )
    name = parts[0]
    if "-" in name or "." in name:
        return None
    if name != str(before + 1):
        raise UserError(
            f"{where}: word number '{name}' instead of {before + 1}; write an empty line between "
            "sentences"
        )
    tag = parts[COLUMNS.index(column)]
    if attribute:
        pairs = (pair.partition("=") for pair in tag.split("|"))
        return parts[1], next((value for name, _, value in pairs if name == attribute), "_")
    if column == "misc" and "=" in tag:
        name = tag.partition("=")[0]
        raise UserError(
            f"{where}: misc contains attributes ('{tag}'); choose one: --column misc.{name}"
        )
    if tag == "_" and column not in _MAY_BE_NOTHING:
        raise UserError(f"{where}: the word '{parts[1]}' has no {column} ('_'); tag it first")
    return parts[1], tag


def _row_2003(parts: Sequence[str], column: str, where: str) -> tuple[str, str] | None:
    """Parse a line of CoNLL-2003; None for the beginning of a document."""
    name = "ner" if column == "upos" else column
    if name not in COLUMNS_2003[1:]:
        raise UserError(
            f"{where}: CoNLL-2003 has no column of tags '{column}'; "
            f"{nearest(column, COLUMNS_2003[1:])}"
        )
    return None if parts[0] == "-DOCSTART-" else (parts[0], parts[COLUMNS_2003.index(name)])


def _check_word(word: str, tag: str, column: str, where: str) -> None:
    if not word.strip():
        raise UserError(f"{where}: the word is empty; write it or remove the line")
    if not tag.strip():
        raise UserError(f"{where}: the word '{word}' has no {column}; tag it or remove the line")
    refuse_surrogates(word, where)


def _json_lines(file: Input, column: str, encoding: str | None) -> Iterator[Tagged]:
    number = 0
    for where, found in json_objects(file, encoding):
        if found is None:
            continue
        words = _strings(found, "tokens" if "tokens" in found else "words", where)
        tags = _strings(found, column if column in found else "tags", where)
        if len(words) != len(tags):
            raise UserError(
                f"{where}: {len(words)} words but {len(tags)} tags; each word has exactly one"
            )
        for word, tag in zip(words, tags, strict=True):
            _check_word(word, tag, "tag", where)
        if not words:
            raise UserError(f"{where}: the sentence has no words; remove the line")
        number += 1
        yield Tagged(tuple(words), tuple(tags))
    if not number:
        raise UserError(f"{file.name}: no sentence in the file; there is nothing to train on")


def _strings(found: dict[str, object], name: str, where: str) -> list[str]:
    values = field(found, name, where)
    if not isinstance(values, list):
        raise UserError(f"{where}: '{name}' is not a list; write one entry for each word")
    if not all(isinstance(value, str | int) for value in values):
        raise UserError(f"{where}: '{name}' has an entry that is not a text or a whole number")
    return [str(value) for value in values]
