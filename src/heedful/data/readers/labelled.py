"""Labelled texts: tables with named columns, JSON lines, and lines that begin with a label."""

import csv
import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from heedful.basics.errors import UserError
from heedful.basics.notices import notice_left_out
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
_SHOWN = 60
"""Characters of a name that messages show."""
LONGEST_FIELD = 1 << 26
"""Maximum characters of a field; the csv module's default, 131,072, is too low for articles."""

Unlabelled = Literal["error", "skip"]
Row = tuple[int, Sequence[str]]
Record = tuple[str, list[str] | None]
"""A description of a record for messages, and its requested values; None for an empty line."""


_CHOICE = "--text and --label"
"""What chooses the columns of a table, unless a caller says otherwise."""


class ColumnError(UserError):
    """A table has no column of a name; ``reason`` does not say what chooses the columns."""

    def __init__(self, reason: str, choice: str = _CHOICE) -> None:
        super().__init__(
            f"{reason} ({choice} choose columns, by number if the first line has no names)"
        )
        self.reason = reason


def read_labelled(
    paths: Sequence[str | Path] | str | Path,
    *,
    text: Sequence[str] = ("text",),
    label: str = "label",
    encoding: str | None = None,
    format: LabelledFormat | None = None,
    unlabelled: Unlabelled | None = "error",
    choice: str = _CHOICE,
    numeric: bool = False,
) -> Iterator[Labelled]:
    """Stream the labelled texts of files.

    Formats: ``tsv`` (TAB-separated, nothing quoted), ``csv`` (commas, or semicolons where the first
    line has no comma; quoted fields may contain line breaks), ``jsonl`` (one object per line) and
    ``label-text`` (the label, a space, the text). The first line names the columns; in a file
    without such a line, give numbers from 1 for all columns. Empty lines are skipped and counted.

    Args:
        paths: plain, gzip or xz; ``-`` is standard input.
        text: the column of the text, or the two columns of a pair; ignored for ``label-text``.
        label: the column of the label; ignored for ``label-text``.
        encoding: encoding of the files; default: UTF-8.
        format: the format; default: by extension, else JSON lines or TSV by the first line.
        unlabelled: what to do with a row without a label: ``error``, or ``skip``, which also counts
            it; None for an error where the user cannot choose.
        choice: what chooses the columns, for messages.
        numeric: whether labels of JSON lines may be any numbers, not only texts and whole numbers.

    Raises:
        UserError: a file is missing or invalid, a column is missing, a row has too many or too few
            columns, a text or label is empty, or a byte cannot be decoded. The message has file and
            line.
    """
    names = [*text, label]
    for file, records, is_json in opened_tables(paths, text, names, encoding, format):
        counts: Counter[str] = Counter()
        read = partial(_json_lines, numeric=True) if is_json and numeric else records
        found = with_choice(read(file, names, encoding), choice)
        for where, values in found:
            if values is None:
                counts["empty lines"] += 1
            elif values[-1].strip():
                yield _example(values, names, where)
            elif unlabelled == "skip":
                counts["rows without a label"] += 1
            else:
                raise _no_label(where, label, found, skippable=unlabelled is not None)
        notice_left_out(file.name, counts)


def with_choice(records: Iterator[Record], choice: str) -> Iterator[Record]:
    """The records; the error for a missing column says what chooses columns."""
    try:
        yield from records
    except ColumnError as error:
        raise ColumnError(error.reason, choice) from None


def _no_label(where: str, label: str, others: Iterator[Record], *, skippable: bool) -> UserError:
    """The error for a row without a label, with the number of further ones in the file."""
    more = sum(values is not None and not values[-1].strip() for _, values in others)
    also = f", as in {more:,} more rows" if more else ""
    how = "remove the row"
    if skippable:
        how = "leave out rows without a label with data.unlabelled = 'skip'"
    return UserError(f"{where}: '{label}' is empty{also}; fill it in, or {how}")


def read_texts(
    path: str | Path,
    *,
    text: Sequence[str] = ("text",),
    encoding: str | None = None,
    format: LabelledFormat | None = None,
) -> Iterator[tuple[str, ...]]:
    """Stream the texts of a table without labels, to predict them record by record.

    For ``text``, ``encoding`` and ``format``, see :func:`read_labelled`. No record is skipped: a
    text may be empty, and an empty line is a record of empty texts.

    Raises:
        UserError: as in :func:`read_labelled`, except for empty texts.
    """
    for file, records, _ in opened_tables([path], text, text, encoding, format):
        for where, values in records(file, text, encoding):
            texts = [""] * len(text) if values is None else values[: len(text)]
            for one in texts:
                refuse_surrogates(one, where)
            yield tuple(texts)


def read_records(
    path: str | Path, names: Sequence[str], encoding: str | None, format: LabelledFormat
) -> Iterator[Record]:
    """Stream the values of named columns, each with file and line; see :func:`read_labelled`.

    Raises:
        UserError: as in :func:`read_labelled`, except for empty values.
    """
    for file, records, _ in opened_tables([path], names[:1], names, encoding, format):
        yield from records(file, names, encoding)


def opened_tables(
    paths: Sequence[str | Path] | str | Path,
    text: Sequence[str],
    names: Sequence[str],
    encoding: str | None,
    format: LabelledFormat | None,
) -> Iterator[tuple[Input, "Records", bool]]:
    """Open each file in turn, with a reader of its records, and whether it has JSON lines.

    Raises:
        UserError: the columns or the format are unknown, or a file cannot be opened.
    """
    if len(text) not in (1, 2):
        raise UserError(f"{len(text)} columns of text given; give one, or two for pairs of texts")
    for name in names:
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
            own = format or _format(file)
            yield file, _RECORDS[own], own == "jsonl"


def table_records(
    file: Input, names: Sequence[str], encoding: str | None, format: LabelledFormat | None
) -> Iterator[Record]:
    """The records of an opened table, with the values of the columns ``names``.

    Raises:
        UserError: as in :func:`read_labelled`, except for empty values.
    """
    return _RECORDS[format or _format(file)](file, names, encoding)


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint with the nearest known name, or with all known names."""
    lower = {other.casefold(): other for other in known}
    near = difflib.get_close_matches(name.casefold(), list(lower), n=1, cutoff=0.5)
    if near:
        return f"did you mean '{_short(lower[near[0]])}'?"
    shown = ", ".join(f"'{_short(other)}'" for other in known[:12])
    return f"known names: {shown}" + (" and more" if len(known) > 12 else "")


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"


def _format(file: Input) -> LabelledFormat:
    """The format from the file name, or else from the first line."""
    found = FORMATS.get(extension(file.name))
    if found is not None:
        return found
    first = file.head().split(b"\n", 1)[0].lstrip(b"\xef\xbb\xbf \t")
    if first.startswith(b"{"):
        return "jsonl"
    if b"\t" in first:
        return "tsv"
    raise UserError(
        f"{file.name}: its format follows neither from its name nor from its first line; give the "
        f"format ({', '.join(get_args(LabelledFormat))})"
    )


def _example(values: Sequence[str], names: Sequence[str], where: str) -> Labelled:
    """Check an example; the last value is the label."""
    for name, value in zip(names, values, strict=True):
        if not value.strip():
            raise UserError(f"{where}: '{name}' is empty; fill it in or remove the line")
        refuse_surrogates(value, where)
    *texts, label = values
    return Labelled(tuple(texts), label.strip())


def _label_text(file: Input, names: Sequence[str], encoding: str | None) -> Iterator[Record]:
    for number, line in enumerate(lines_of(file, encoding), start=1):
        where = f"{file.name}:{number}"
        label, space, text = line.partition(" ")
        if not line.strip():
            yield where, None
        elif space:
            yield where, [text, label]
        else:
            raise UserError(f"{where}: no space in this line; write a label, a space and the text")


def _table(
    read: Callable[[Input, str | None], Iterator[Row]],
    file: Input,
    names: Sequence[str],
    encoding: str | None,
) -> Iterator[Record]:
    """The records of a table; the first line names the columns unless columns are numbers."""
    places: list[int] | None = None
    width = 0
    numbered = all(name.isdigit() for name in names)
    for number, row in read(file, encoding):
        where = f"{file.name}:{number}"
        if not row or (len(row) == 1 and not row[0].strip()):
            yield where, None
            continue
        if places is None:
            width = len(row)
            places = [_place(name, row, numbered, where) for name in names]
            if not numbered:
                continue
        if len(row) != width:
            raise UserError(
                f"{where}: columns: {len(row)}, but {width} in the first line; correct the line "
                "(a text that contains the separator must be quoted, which only CSV allows)"
            )
        yield where, [row[place] for place in places]
    if places is None:
        raise UserError(f"{file.name}: the file is empty")


def _place(name: str, header: Sequence[str], numbered: bool, where: str) -> int:
    """The index of the requested column."""
    if numbered:
        if int(name) > len(header):
            raise UserError(f"{where}: no column {name}; the line has {len(header)}")
        return int(name) - 1
    known = [column.strip() for column in header]
    if known.count(name) == 1:
        return known.index(name)
    if name in known:
        raise UserError(f"{where}: two columns have the name '{name}'; rename one of them")
    raise ColumnError(f"{where}: there is no column '{name}'; {nearest(name, known)}")


def tsv_rows(file: Input, encoding: str | None) -> Iterator[Row]:
    """Numbered rows of a table whose columns are separated by TABs; nothing is quoted."""
    for number, line in enumerate(lines_of(file, encoding), start=1):
        yield number, line.split("\t")


def csv_rows(file: Input, encoding: str | None) -> Iterator[Row]:
    """Numbered rows of a table of comma-separated values; the number is that of the first line."""
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
                f"{file.name}:{begins}: not valid CSV from here on ({error}); correct the quotes: "
                "a quote inside a quoted text is doubled"
            ) from error
        if row is None:
            return
        yield begins, row
        begins = rows.line_num + 1


def _json_lines(
    file: Input, names: Sequence[str], encoding: str | None, *, numeric: bool = False
) -> Iterator[Record]:
    for where, found in json_objects(file, encoding):
        own = [_value(found, name, where, numeric) for name in names] if found is not None else None
        yield where, own


def json_objects(file: Input, encoding: str | None) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """A description of each line for messages, and its object; None for an empty line.

    Raises:
        UserError: a line is not a JSON object.
    """
    return objects_of_lines(file.name, lines_of(file, encoding))


def objects_of_lines(
    name: str, lines: Iterable[str]
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """As :func:`json_objects`, for the lines of a file with this name."""
    for number, line in enumerate(lines, start=1):
        where = f"{name}:{number}"
        if not line.strip():
            yield where, None
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not a JSON object; write one object a line") from error
        if not isinstance(found, dict):
            raise UserError(f"{where}: not a JSON object; write one object a line")
        yield where, found


def field(found: dict[str, Any], name: str, where: str) -> Any:
    """A field of an object.

    Raises:
        UserError: the object has no field of this name.
    """
    if name not in found:
        raise UserError(f"{where}: there is no field '{name}'; {nearest(name, list(found))}")
    return found[name]


def _value(found: dict[str, Any], name: str, where: str, numeric: bool) -> str:
    value = field(found, name, where)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str | int) or (numeric and isinstance(value, float)):
        return "" if value is None else str(value)
    raise UserError(f"{where}: '{name}' must be a text or a {'' if numeric else 'whole '}number")


Records = Callable[[Input, Sequence[str], str | None], Iterator[Record]]
_RECORDS: dict[LabelledFormat, Records] = {
    "tsv": partial(_table, tsv_rows),
    "csv": partial(_table, csv_rows),
    "jsonl": _json_lines,
    "label-text": _label_text,
}
