"""CSV and TSV: a column of sources, and one of targets.

Cells may be quoted as in RFC 4180. TSV often has no quotes: a cell there is only quoted if its
closing quote ends it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import ClassVar, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.documents.base import Entry
from heedful.data.documents.text_spans import TextSpanDocument

DELIMITERS = (",", ";", "\t", "|")
"""The delimiters that CSV files are searched for."""
_SEP = re.compile(r"sep=([^\r\n\"])(?:\r\n|[\r\n])", re.IGNORECASE)
"""Excel's first line with the delimiter."""
_ROWS = 50
"""Rows that are read to find the delimiter."""


class Cell(NamedTuple):
    """A cell, from ``start`` to ``end`` in characters, including quotes."""

    start: int
    end: int
    quoted: bool


class Layout(NamedTuple):
    """The delimiter of a table, and the indices of the columns of sources and targets."""

    delimiter: str
    source: int
    target: int


class TableDocument(TextSpanDocument):
    """The rows of a table with an empty target; all texts of a column if it is also the target.

    Args:
        data: the uncompressed bytes of the file.
        name: the name in messages.
        source: the column of sources: its name in the first row, or its number from 1. If one of
            the columns is a name, the first row has no texts.
        target: the column of targets.
        delimiter: the delimiter of TSV files; None for CSV, whose delimiter is detected.
        encoding: encoding of the text; default: by its byte order mark, else UTF-8.
        layout: that of the rows before, for a part of a table; its first row is like others.
    """

    bilingual: ClassVar[bool] = True

    def __init__(
        self,
        data: bytes,
        name: str,
        source: str,
        target: str,
        delimiter: str | None = None,
        encoding: str | None = None,
        layout: Layout | None = None,
    ) -> None:
        self._columns, self._is_csv = (source, target), delimiter is None
        self.delimiter, self._layout = delimiter or "", layout
        self._missing: list[int] = []
        """Number of delimiters that the row of each segment lacks before its target."""
        self._sources: list[Cell] = []
        super().__init__(data, name, encoding)

    def find(self) -> None:
        start = 0
        if self._layout is not None:
            self.delimiter = self._layout.delimiter
        elif self._is_csv and (said := _SEP.match(self.text)):
            self.delimiter, start = said[1], said.end()
        elif self._is_csv:
            self.delimiter = self._detected()
        own, other, has_header = self._column_places(start)
        self.layout = Layout(self.delimiter, own, other)
        line = self.line_of(start)
        at = start
        for number, row in enumerate(rows(self.text, start, self.delimiter)):
            line += len(re.findall(r"\r\n|[\r\n]", self.text[at : row[0].start]))
            at = row[0].start
            self._check(row)
            if (has_header and number == 0) or own >= len(row):
                continue
            source = self._text_of(row[own])
            target = self._text_of(row[other]) if other < len(row) else ""
            if own != other:
                if source.strip():
                    self.entries.append(Entry(f"line {line}", source, target))
                if target.strip():
                    continue
            self._add_row(row, own, other, source)

    def escaped(self, place: int, translation: str) -> str:
        source = self._sources[place]
        start, end = self._places[place]
        raw = self.text[source.start : source.end]
        text = translation.replace("\n", "\r\n") if "\r\n" in raw else translation
        was_quoted = self.text[start:end].startswith('"') or (
            source.quoted and not self._needs_quotes(raw[1:-1])
        )
        if (was_quoted and self._is_csv) or self._needs_quotes(text):
            text = '"' + text.replace('"', '""') + '"'
        return self.delimiter * self._missing[place] + text

    def _add_row(self, row: Sequence[Cell], own: int, other: int, source: str) -> None:
        if not source.strip():
            return
        missing = max(0, other - len(row) + 1)
        end = row[-1].end
        self.add(*((end, end) if missing else row[other][:2]), source)
        self._missing.append(missing)
        self._sources.append(row[own])

    def _needs_quotes(self, text: str) -> bool:
        if any(sign in text for sign in (self.delimiter, "\r", "\n")):
            return True
        return '"' in text if self._is_csv else text.startswith('"')

    def _text_of(self, cell: Cell) -> str:
        raw = self.text[cell.start : cell.end]
        if cell.quoted:
            raw = raw[1:-1].replace('""', '"')
        return raw.replace("\r\n", "\n")

    def _check(self, row: Sequence[Cell]) -> None:
        """Raise an error for a quote that does not end its cell."""
        if self._is_csv:
            for cell in row:
                if not cell.quoted and self.text.startswith('"', cell.start):
                    raise self.broken(cell.start, "a quote opens a cell that it does not close")

    def _column_places(self, start: int) -> tuple[int, int, bool]:
        """The indices of the columns, and whether the first row has their names."""
        if self._layout is not None:
            return self._layout.source, self._layout.target, False
        first = next(rows(self.text, start, self.delimiter), [])
        names = [self._text_of(cell).strip() for cell in first]
        found = [self._place(wanted, names) for wanted in self._columns]
        return found[0], found[1], not all(wanted.isdecimal() for wanted in self._columns)

    def _place(self, wanted: str, names: Sequence[str]) -> int:
        if wanted.isdecimal():
            if not 1 <= int(wanted) <= max(1, len(names)):
                raise UserError(f"{self.name}: no column {wanted}; it has {len(names)}")
            return int(wanted) - 1
        if names.count(wanted) > 1:
            raise UserError(f"{self.name}: several columns are named '{wanted}'; give a number")
        if wanted not in names:
            there = ", ".join(names)[:200]
            raise UserError(f"{self.name}: no column '{wanted}'; its columns are: {there}")
        return names.index(wanted)

    def _detected(self) -> str:
        """The delimiter with which the columns exist and most rows have the same length."""

        def fit(delimiter: str) -> tuple[bool, int, int]:
            first = list(islice(rows(self.text, 0, delimiter), _ROWS))
            names = [self._text_of(cell).strip() for cell in first[0]] if first else []
            exist = all(
                int(one) <= len(names) if one.isdecimal() else one in names for one in self._columns
            )
            width, count = Counter(map(len, first)).most_common(1)[0] if first else (0, 0)
            return exist, count if width > 1 else 0, width

        return max(DELIMITERS, key=fit)


def rows(text: str, start: int, delimiter: str) -> Iterator[list[Cell]]:
    """The rows of a table; a blank line is a row with one blank cell."""
    row: list[Cell] = []
    place = start
    while place < len(text) or row:
        cell = _cell(text, place, delimiter)
        row.append(cell)
        place = cell.end
        if text.startswith(delimiter, place):
            place += 1
            continue
        yield row
        row = []
        place += 2 if text.startswith("\r\n", place) else 1


def _cell(text: str, start: int, delimiter: str) -> Cell:
    """The cell that begins at a place."""
    quoted, plain = _patterns(delimiter)
    if found := quoted.match(text, start):
        return Cell(start, found.end(), True)
    found = plain.match(text, start)
    assert found is not None
    return Cell(start, found.end(), False)


@cache
def _patterns(delimiter: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The patterns of quoted and of plain cells."""
    sign = re.escape(delimiter)
    quoted = rf'"[^"]*+(?:""[^"]*+)*+"(?=[{sign}\r\n]|\Z)'
    return re.compile(quoted), re.compile(rf"[^{sign}\r\n]*")
