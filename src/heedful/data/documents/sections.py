"""Large documents as sequences of small ones, so that little of a file is in memory at a time."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.documents.base import Document
from heedful.data.documents.cutting import SIZE, Part, UncuttableError, cut_po, cut_table, cut_xml
from heedful.data.documents.formats import Format, Opening, is_xliff_2
from heedful.data.documents.po import PoDocument
from heedful.data.documents.table import Layout, TableDocument
from heedful.data.documents.tmx import TmxDocument
from heedful.data.documents.xliff import XliffDocument
from heedful.data.readers.catalogue import Header
from heedful.data.readers.kinds import MARKS, xml_encoding
from heedful.data.readers.opening import open_input
from heedful.data.readers.po import declared_charset
from heedful.data.readers.text import codec_name

_ASCII = ("utf-8", "ascii", "iso8859", "cp125", "koi8")
"""The beginnings of names of encodings in which an ASCII byte is always this character."""


_TRIED = 100
"""Line ends at which the beginning of a table is tried to end."""


class Section(NamedTuple):
    """A section of a document: a document of its own, which has further bytes around it."""

    document: Document
    part: Part

    def trimmed(self, data: bytes) -> bytes:
        """The contents of the document without what does not belong to the file."""
        return data[len(self.part.before) : len(data) - len(self.part.after)]


class Sections(ABC):
    """A document that is read in sections; the file is read twice.

    Args:
        path: the file, plain or compressed.
        own: what is known about it.
        size: the smallest size of a section in bytes.

    Raises:
        UncuttableError: the file has to be read as a whole.
        UserError: a section is invalid. The line in the message is that in the section.
    """

    declares_encoding: ClassVar[bool] = True
    is_for_translation: ClassVar[bool] = True

    def __init__(self, path: Path, own: Opening, size: int = SIZE) -> None:
        self.name, self.own, self._path, self._size = str(path), own, path, size
        self.count = 0
        """The number of segments."""
        self._counts: Counter[str] = Counter()
        for one in self:
            self.learn(one.document)

    def __iter__(self) -> Iterator[Section]:
        self._last: Document | None = None
        with open_input(self._path) as file:
            self.check(file.head())
            for part in self.cut(file.chunks()):
                document = self.open(part.before + part.data + part.after)
                document.reports = self._report
                self._last = document
                yield Section(document, part)

    def tell(self) -> None:
        """Print the notices of all sections, with the sums of their numbers."""
        for text, count in self._counts.items():
            notice(f"{self.name}: {count} {text}")
        self._counts.clear()

    @abstractmethod
    def check(self, head: bytes) -> None:
        """Raise `UncuttableError` for a file that cannot be cut."""

    def learn(self, document: Document) -> None:
        """Take from a section, before all sections are opened again, what others need."""
        self.count += len(document.segments)

    @abstractmethod
    def cut(self, chunks: Iterable[bytes]) -> Iterator[Part]:
        """Cut the file."""

    @abstractmethod
    def open(self, data: bytes) -> Document:
        """Open a section, after the one that was opened last."""

    def _report(self, count: int, text: str) -> None:
        self._counts[text] += count


class PoSections(Sections):
    """The sections of a PO file; all have its header."""

    def check(self, head: bytes) -> None:
        self._encoding = _ascii_based(self.own.encoding or declared_charset(head), head)

    def cut(self, chunks: Iterable[bytes]) -> Iterator[Part]:
        return cut_po(chunks, self._size)

    def open(self, data: bytes) -> Document:
        own, last = self.own, self._last
        header = last.header if isinstance(last, PoDocument) else Header()
        return PoDocument(data, self.name, own.source, own.target, self._encoding, header)


class TableSections(Sections):
    """The sections of a CSV or TSV file; all have the columns and delimiter of the first."""

    declares_encoding: ClassVar[bool] = False
    _delimiter: str | None = None

    def check(self, head: bytes) -> None:
        self._encoding = _ascii_based(self.own.encoding, head)
        self._layout: Layout | None = None
        self._own_delimiter = self._open(_some_rows(head, self._open)).delimiter
        if not self._own_delimiter.isascii():
            raise UncuttableError

    def cut(self, chunks: Iterable[bytes]) -> Iterator[Part]:
        return cut_table(chunks, self._own_delimiter, self._size)

    def open(self, data: bytes) -> Document:
        document = self._open(data)
        self._layout = document.layout
        return document

    def _open(self, data: bytes) -> TableDocument:
        columns = self.own.columns
        if columns is None:
            raise UncuttableError
        return TableDocument(
            data, self.name, *columns, self._delimiter, self._encoding, self._layout
        )


class TsvSections(TableSections):
    """The sections of a TSV file."""

    _delimiter = "\t"


class XliffSections(Sections):
    """The sections of an XLIFF 1.2 file."""

    def check(self, head: bytes) -> None:
        if is_xliff_2(head):
            raise UncuttableError
        _check_xml(head, self.own)

    def cut(self, chunks: Iterable[bytes]) -> Iterator[Part]:
        return cut_xml(chunks, "trans-unit", self._size)

    def open(self, data: bytes) -> Document:
        return XliffDocument(data, self.name, self.own.source, self.own.target, None)


class TmxSections(Sections):
    """The sections of a TMX file; all write the same code for the target language."""

    def check(self, head: bytes) -> None:
        _check_xml(head, self.own)
        if not hasattr(self, "_codes"):
            self._codes: Counter[str] = Counter()

    def cut(self, chunks: Iterable[bytes]) -> Iterator[Part]:
        return cut_xml(chunks, "tu", self._size)

    def learn(self, document: Document) -> None:
        super().learn(document)
        assert isinstance(document, TmxDocument)
        self._codes.update(document.codes)

    def open(self, data: bytes) -> Document:
        own = self.own
        if own.source is None or own.target is None:
            raise UncuttableError
        return TmxDocument(data, self.name, own.source, own.target, None, self._codes)


_SECTIONS: dict[str, Callable[[Path, Opening, int], Sections]] = {
    "po": PoSections,
    "csv": TableSections,
    "tsv": TsvSections,
    "xliff": XliffSections,
    "tmx": TmxSections,
}


def find_sections(path: Path, form: Format, own: Opening, size: int = SIZE) -> Sections | None:
    """The sections of a file; None if it has to be read as a whole.

    Args:
        path: the file.
        form: its format.
        own: what is known about it.
        size: the smallest size of a section in bytes.
    """
    make = _SECTIONS.get(form.name)
    if make is None:
        return None
    try:
        return make(path, own, size)
    except (UncuttableError, UserError):
        return None  # an error gets the right line when the file is read as a whole


def _ascii_based(encoding: str | None, head: bytes) -> str:
    """The encoding, if bytes of ASCII are what they seem."""
    name = codec_name(encoding)
    has_mark = any(head.startswith(mark) for mark, own in MARKS if own != "utf-8-sig")
    if has_mark or not name.startswith(_ASCII):
        raise UncuttableError
    return name


def _some_rows(head: bytes, opens: Callable[[bytes], object]) -> bytes:
    """The longest beginning of a table that does not end in a quoted cell with line breaks."""
    for _ in range(_TRIED):
        head = head[: max(0, head.rfind(b"\n", 0, -1)) + 1]
        try:
            opens(head)
        except UserError:
            continue
        return head
    raise UncuttableError


def _check_xml(head: bytes, own: Opening) -> None:
    said = own.encoding or xml_encoding(head)
    if codec_name(said) != "utf-8-sig" or any(head.startswith(mark) for mark, _ in MARKS):
        raise UncuttableError
