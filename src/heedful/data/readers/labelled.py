"""Labelled texts: tables with named columns, JSON lines, and lines that begin with their label."""

import csv
import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, get_args

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import Labelled
from heedful.data.readers.kinds import extension
from heedful.data.readers.opening import Input, open_input
from heedful.data.readers.text import codec_name, lines_of
from heedful.data.subwords import refuse_surrogates

LabelledFormat = Literal["tsv", "csv", "jsonl", "label-text"]
FORMATS: dict[str, LabelledFormat] = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
LONGEST_FIELD = 1 << 26
"""Characters; the csv module's own limit is 131,072, which an article may well exceed."""

_EMPTY_LINES = "empty lines"
Row = tuple[int, Sequence[str]]


def read_labelled(
    paths: Sequence[str | Path] | str | Path,
    *,
    text: Sequence[str] = ("text",),
    label: str = "label",
    encoding: str | None = None,
    format: LabelledFormat | None = None,
) -> Iterator[Labelled]:
    """Stream labelled texts, from one file after the other.

    Formats: ``tsv`` (TAB-separated, nothing quoted), ``csv`` (commas, or semicolons where the first
    line has no comma; fields may be quoted and then hold line breaks), ``jsonl`` (an object a line)
    and ``label-text`` (the label, a space, the text). Columns are named by the first line, or, all
    of them by number from 1, in a file that has no such line. Empty lines are left out and counted.

    Args:
        paths: plain, gzip or xz; ``-`` is standard input.
        text: the column of the text, or the two of a pair; without effect on ``label-text``.
        label: the column of the label; without effect on ``label-text``.
        encoding: UTF-8 unless said.
        format: by default what the extension says, else JSON lines or TSV by the first line.

    Raises:
        UserError: a file is missing or broken, a column is missing, a row has too many or too few,
            a text or a label is empty, a byte is not text; file and line are named.
    """
    if len(text) not in (1, 2):
        raise UserError(f"{len(text)} columns of text given; give one, or two for pairs of texts")
    for name in [*text, label]:
        if not name.strip() or (name.isdigit() and int(name) == 0):
            raise UserError(f"'{name}' names no column; give a column's name, or its number from 1")
    if format is not None and format not in get_args(LabelledFormat):
        raise UserError(
            f"unknown format '{format}'; known are {', '.join(get_args(LabelledFormat))}"
        )
    codec_name(encoding)
    for path in [paths] if isinstance(paths, str | Path) else paths:
        opened: AbstractContextManager[Input] = open_input(path)
        with opened as file:
            left_out: Counter[str] = Counter()
            kind = format or _format(file)
            if kind == "jsonl":
                yield from _json_lines(file, text, label, encoding, left_out)
            elif kind == "label-text":
                yield from _label_text(file, encoding, left_out)
            else:
                read = _tsv_rows if kind == "tsv" else _csv_rows
                yield from _table(file, read, (*text, label), encoding, left_out)
            if left_out.total():
                notice(f"left out of {file.name}: {left_out[_EMPTY_LINES]:,} {_EMPTY_LINES}")


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint at the right name of what is asked for as ``name``, or at all that there are."""
    lower = {other.casefold(): other for other in known}
    near = difflib.get_close_matches(name.casefold(), list(lower), n=1, cutoff=0.5)
    if near:
        return f"did you mean '{lower[near[0]]}'?"
    shown = ", ".join(f"'{other}'" for other in known[:12])
    return f"there are {shown}" + (" and more" if len(known) > 12 else "")


def _format(file: Input) -> LabelledFormat:
    """The format by the file's name, or else by its first line."""
    found = FORMATS.get(extension(file.name))
    if found is not None:
        return found
    first = file.head().split(b"\n", 1)[0].lstrip(b"\xef\xbb\xbf \t")
    if first.startswith(b"{"):
        return "jsonl"
    if b"\t" in first:
        return "tsv"
    raise UserError(
        f"{file.name}: neither its name nor its first line says how labels are written; say the "
        f"format ({', '.join(get_args(LabelledFormat))})"
    )


def _example(texts: Sequence[str], label: str, where: str, names: Sequence[str]) -> Labelled:
    """One example, checked; ``names`` are those of the texts' columns, then the label's."""
    for name, value in zip(names, [*texts, label], strict=True):
        if not value.strip():
            raise UserError(f"{where}: '{name}' is empty; fill it in or remove the line")
        refuse_surrogates(value, where)
    return Labelled(tuple(texts), label.strip())


def _label_text(file: Input, encoding: str | None, left_out: Counter[str]) -> Iterator[Labelled]:
    for number, line in enumerate(lines_of(file, encoding), start=1):
        if not line.strip():
            left_out[_EMPTY_LINES] += 1
            continue
        label, space, text = line.partition(" ")
        where = f"{file.name}:{number}"
        if not space:
            raise UserError(f"{where}: no space in this line; each is a label, a space, the text")
        yield _example([text], label, where, ("text", "label"))


def _table(
    file: Input,
    read: Callable[[Input, str | None], Iterator[Row]],
    names: Sequence[str],
    encoding: str | None,
    left_out: Counter[str],
) -> Iterator[Labelled]:
    """The examples of a table, whose first line names the columns unless numbers are asked for."""
    places: list[int] | None = None
    width = 0
    numbered = all(name.isdigit() for name in names)
    for number, row in read(file, encoding):
        if not row or (len(row) == 1 and not row[0].strip()):
            left_out[_EMPTY_LINES] += 1
            continue
        where = f"{file.name}:{number}"
        if places is None:
            width = len(row)
            places = [_place(name, row, numbered, where) for name in names]
            if not numbered:
                continue
        if len(row) != width:
            raise UserError(
                f"{where}: {len(row)} columns where the first line has {width}; mend the line "
                "(a text with the separator in it must be quoted, which only CSV has)"
            )
        *texts, label = (row[place] for place in places)
        yield _example(texts, label, where, names)
    if places is None:
        raise UserError(f"{file.name}: the file is empty; there is nothing to learn from")


def _place(name: str, header: Sequence[str], numbered: bool, where: str) -> int:
    """Where the column is that is asked for."""
    if numbered:
        if int(name) > len(header):
            raise UserError(f"{where}: no column {name}; the line has {len(header)}")
        return int(name) - 1
    known = [column.strip() for column in header]
    if known.count(name) == 1:
        return known.index(name)
    if name in known:
        raise UserError(f"{where}: two columns are called '{name}'; rename one of them")
    raise UserError(
        f"{where}: no column is called '{name}'; {nearest(name, known)} (a file whose first line "
        "names no columns is read by their numbers)"
    )


def _tsv_rows(file: Input, encoding: str | None) -> Iterator[Row]:
    for number, line in enumerate(lines_of(file, encoding), start=1):
        yield number, line.split("\t")


def _csv_rows(file: Input, encoding: str | None) -> Iterator[Row]:
    """Rows with the number of the line that each begins on."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    lines = (line + "\n" for line in lines_of(file, encoding))
    first = next(lines, None)
    if first is None:
        return

    def all_lines() -> Iterator[str]:
        yield first
        yield from lines

    separator = ";" if ";" in first and "," not in first else ","
    rows = csv.reader(all_lines(), delimiter=separator, strict=True)
    begins = 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise UserError(
                f"{file.name}:{begins}: not valid CSV from here on ({error}); mend the quotes: one "
                "within a quoted text is doubled"
            ) from error
        if row is None:
            return
        yield begins, row
        begins = rows.line_num + 1


def _json_lines(
    file: Input, text: Sequence[str], label: str, encoding: str | None, left_out: Counter[str]
) -> Iterator[Labelled]:
    for where, found in json_objects(file, encoding, left_out):
        texts = [_string(found, name, where) for name in text]
        yield _example(texts, _label(found, label, where), where, (*text, label))


def json_objects(
    file: Input, encoding: str | None, left_out: Counter[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The object of each line and what errors call the line.

    Raises:
        UserError: a line is not a JSON object.
    """
    for number, line in enumerate(lines_of(file, encoding), start=1):
        where = f"{file.name}:{number}"
        if not line.strip():
            left_out[_EMPTY_LINES] += 1
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise UserError(f"{where}: not a JSON object; JSON lines have one a line") from error
        if not isinstance(found, dict):
            raise UserError(f"{where}: not a JSON object; JSON lines have one a line")
        yield where, found


def field(found: dict[str, Any], name: str, where: str) -> Any:
    """A field of an object.

    Raises:
        UserError: there is none of the name.
    """
    if name not in found:
        raise UserError(f"{where}: no field is called '{name}'; {nearest(name, list(found))}")
    return found[name]


def _string(found: dict[str, Any], name: str, where: str) -> str:
    value = field(found, name, where)
    if not isinstance(value, str):
        raise UserError(f"{where}: '{name}' is not a text in quotes; write it as one")
    return value


def _label(found: dict[str, Any], name: str, where: str) -> str:
    value = field(found, name, where)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise UserError(f"{where}: the label '{name}' is neither a text nor a whole number; write one")
