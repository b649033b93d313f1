"""Cuts large files into sections, each of which can be read alone, without holding them as a whole.

A section ends between two entries of PO, two rows of a table, or two units of XML.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from xml.parsers import expat

from heedful.data.documents.table import Cell, rows
from heedful.data.readers.markup import ATTRIBUTE_ESCAPES

SIZE = 1 << 20
"""The size of a section in bytes: about 10,000 short segments, which are translated together."""

_LOOK_BACK = 1 << 16
_PO_BREAK = re.compile(rb"\n[ \t]*\r?\n(?=#|msgctxt|msgid[ \t\"])")
_PO_KEYWORD = re.compile(rb"^[ \t]*(msg[a-z_]+)", re.MULTILINE)
_PO_ENDS = (b'"', b"msgstr")
_OPEN_CELL = re.compile(r'"[^"]*+(?:""[^"]*+)*+"?\Z')


class UncuttableError(Exception):
    """The file cannot be cut into sections; it has to be read as a whole."""


class Part(NamedTuple):
    """A section of a file.

    Attributes:
        data: the bytes of the file.
        before: bytes that have to stand before it so that it can be read alone.
        after: bytes that have to stand after it.
    """

    data: bytes
    before: bytes = b""
    after: bytes = b""


def cut_po(chunks: Iterable[bytes], size: int = SIZE) -> Iterator[Part]:
    """Cut a catalogue between entries. Its encoding must contain ASCII."""
    return _cut(chunks, size, _po_end)


def cut_table(chunks: Iterable[bytes], delimiter: str, size: int = SIZE) -> Iterator[Part]:
    """Cut a table between rows. Its encoding must contain ASCII."""
    return _cut(chunks, size, lambda data, size: _row_end(data, size, delimiter))


def cut_xml(chunks: Iterable[bytes], unit: str, size: int = SIZE) -> Iterator[Part]:
    """Cut XML in UTF-8 before elements of a name; each section has the tags of open elements.

    Args:
        chunks: the bytes of the file.
        unit: the local name of the elements.
        size: the smallest size of a section in bytes.

    Raises:
        UncuttableError: the XML is not well-formed, or has a document type.
    """
    cutter = _XmlCutter(unit, size)
    rest, start, before = bytearray(), 0, b""
    try:
        for chunk in chunks:
            rest += chunk
            cutter.parser.Parse(chunk, False)
            while cutter.cuts:
                place, opened, closed = cutter.cuts.pop(0)
                yield Part(bytes(rest[: place - start]), before, closed)
                del rest[: place - start]
                start, before = place, opened
        cutter.parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise UncuttableError from error
    yield Part(bytes(rest), before)


class _XmlCutter:
    """Finds the places of cuts, with the tags that open and close the elements around them."""

    def __init__(self, unit: str, size: int) -> None:
        self.parser = expat.ParserCreate("utf-8")
        self.parser.ordered_attributes = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.cuts: list[tuple[int, bytes, bytes]] = []
        self._unit, self._size, self._last = unit, size, 0
        self._open: list[tuple[str, list[str]]] = []

    def _start(self, name: str, attributes: list[str]) -> None:
        place = self.parser.CurrentByteIndex
        if name.rpartition(":")[2] == self._unit and place - self._last >= self._size:
            opened = "".join(_tag(*one) for one in self._open)
            closed = "".join(f"</{name}>" for name, _ in reversed(self._open))
            self.cuts.append((place, opened.encode(), closed.encode()))
            self._last = place
        self._open.append((name, attributes))

    def _end(self, name: str) -> None:
        self._open.pop()

    def _doctype(self, *_: object) -> None:
        raise UncuttableError


def _tag(name: str, attributes: list[str]) -> str:
    pairs = zip(attributes[::2], attributes[1::2], strict=True)
    written = (f' {key}="{value.translate(ATTRIBUTE_ESCAPES)}"' for key, value in pairs)
    return f"<{name}{''.join(written)}>"


def _cut(
    chunks: Iterable[bytes], size: int, end_of: Callable[[bytes, int], int | None]
) -> Iterator[Part]:
    """Sections that end where a function tells, which is tried again with twice as many bytes."""
    rest, fewest = bytearray(), size + size // 16
    needed = fewest
    for chunk in chunks:
        rest += chunk
        while len(rest) >= needed:
            end = end_of(bytes(rest), size)
            if end is None:
                needed = 2 * len(rest)
                break
            yield Part(bytes(rest[:end]))
            del rest[:end]
            needed = fewest
    if rest:
        yield Part(bytes(rest))


def _po_end(data: bytes, size: int) -> int | None:
    """Where an entry ends after ``size`` bytes; None if none does."""
    for found in _PO_BREAK.finditer(data, size):
        before = data[max(0, found.start() - _LOOK_BACK) : found.start()]
        last = before.rstrip().rpartition(b"\n")[2].lstrip()
        keywords = _PO_KEYWORD.findall(before)
        if last.startswith(_PO_ENDS) and keywords and keywords[-1] == b"msgstr":
            return found.end()
    return None


def _row_end(data: bytes, size: int, delimiter: str) -> int | None:
    """Where a row ends after ``size`` bytes; None if the end of a cell before is not known."""
    text = data.decode("latin-1")  # one character a byte
    for row in rows(text, 0, delimiter):
        start = row[0].start
        if start >= size:
            return start
        if any(_is_open(text, cell) for cell in row) or row[-1].end >= len(text) - 1:
            return None
    return None


def _is_open(text: str, cell: Cell) -> bool:
    """Whether a quote may open a cell that ends after the text."""
    return text.startswith('"', cell.start) and _OPEN_CELL.match(text, cell.start) is not None
