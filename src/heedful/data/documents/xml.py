"""In-place editing of XML: lxml parses elements, expat finds their byte positions."""

import codecs
import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.parsers import expat

from heedful.basics.errors import UserError
from heedful.data.documents.base import Document, Edit, without_forbidden
from heedful.data.readers.kinds import xml_encoding
from heedful.data.readers.markup import Segment, split_codes, write_segment
from heedful.data.readers.text import bad_byte, codec_name
from heedful.data.readers.xml import SAFE, broken, refuse_entities, refuse_references

if TYPE_CHECKING:
    from lxml import etree

TAG = re.compile(rb"""<[^"'>]*(?:"[^"]*"[^"'>]*|'[^']*'[^"'>]*)*>""")


class Span(NamedTuple):
    """The byte positions of an element: its start tag, and the end of its end tag."""

    start: int
    end: int


class XmlDocument(Document):
    """A document of units, kept as UTF-8 in memory and written in its own encoding.

    Args:
        data: the uncompressed bytes of the file.
        name: the name in messages.
        encoding: its encoding, if given.
        kind: name of the format, for messages.
    """

    def __init__(self, data: bytes, name: str, encoding: str | None, kind: str) -> None:
        super().__init__(name)
        self._data = data
        self._kind = kind
        # The plain codecs of UTF-16 and UTF-32 write a mark of their own; the mark is kept by us.
        self._encoding, self._mark = _codec_and_mark(data, encoding)
        self._bytes = self._decode(data[len(self._mark) :]).encode("utf-8")
        self.root = self._parse(self._bytes)
        self._spans = dict(zip(self.root.iter("*"), element_spans(self._bytes), strict=True))
        self._codes: list[tuple[str, ...]] = []
        self._newline = "\r\n" if b"\r\n" in self._bytes else "\n"

    def add_segment(self, segment: Segment) -> None:
        """Add a source to translate, with its inline codes."""
        self.segments.append(segment.text)
        self._codes.append(segment.codes)

    def span(self, element: "etree._Element") -> Span:
        """The byte positions of an element."""
        return self._spans[element]

    def start_tag(self, element: "etree._Element") -> str:
        """The start tag of an element, as written in the file."""
        start = self.span(element).start
        return self._bytes[start : end_of_tag(self._bytes, start)].decode("utf-8")

    def indentation(self, element: "etree._Element") -> str:
        """The white space before an element, if only white space precedes it."""
        start = first = self.span(element).start
        while first and self._bytes[first - 1] in b" \t\r\n":
            first -= 1
        is_after_tag = self._bytes[first - 1 : first] == b">"
        return self._bytes[first:start].decode("utf-8") if is_after_tag else ""

    def accepts(self, place: int, translation: str) -> bool:
        text, _ = without_forbidden(translation)
        return not text.strip() or write_segment(text, self._codes[place])[1]

    def pieces(self, place: int) -> list[str]:
        return split_codes(self.segments[place], self._codes[place])

    @abstractmethod
    def edit(self, place: int, content: str) -> Edit:
        """The edit that inserts content (as XML) in the target of a segment."""

    def edits_of_root(self) -> Sequence[Edit]:
        """What the root needs when a target was filled."""
        return ()

    def _original(self) -> bytes:
        return self._data

    def _with(self, translations: Sequence[str]) -> bytes:
        edits, forbidden, unmatched = [], 0, 0
        for place, (translation, codes) in enumerate(zip(translations, self._codes, strict=True)):
            text, removed = without_forbidden(translation)
            forbidden += removed
            if text.strip():
                content, matched = write_segment(text, codes)
                edits.append(self.edit(place, content.replace("\n", self._newline)))
                unmatched += not matched
        if forbidden:
            self.report(forbidden, "characters that XML cannot hold were left out")
        if unmatched:
            self.report(
                unmatched,
                "translations have other inline codes than their source; these codes were written "
                "as plain text",
            )
        result = edited(self._bytes, [*self.edits_of_root(), *edits] if edits else [])
        expat.ParserCreate("utf-8").Parse(result, True)  # well-formed; a tree would take memory
        if self._encoding == "utf-8":
            return self._mark + result
        return self._mark + result.decode("utf-8").encode(self._encoding, "xmlcharrefreplace")

    def _decode(self, data: bytes) -> str:
        try:
            text = data.decode(self._encoding)
        except UnicodeDecodeError as error:
            line = 1 + data[: error.start].count(b"\n")
            raise bad_byte(self.name, line, error, self._encoding) from error
        if text.encode(self._encoding) != data:
            raise UserError(
                f"{self.name}: its {self._encoding} text cannot be written unchanged; use UTF-8"
            )
        return text

    def _parse(self, data: bytes) -> "etree._Element":
        from lxml import etree

        parser = etree.XMLParser(encoding="utf-8", **SAFE)
        try:
            root = etree.fromstring(data, parser)
        except etree.XMLSyntaxError as error:
            raise broken(self.name, self._kind, error) from error
        refuse_entities(root, self.name)
        return root


def edited(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Apply edits that do not overlap."""
    parts, place = [], 0
    for edit in sorted(edits):
        parts += [data[place : edit.start], edit.text.encode("utf-8")]
        place = edit.end
    return b"".join([*parts, data[place:]])


def element_spans(data: bytes) -> list[Span]:
    """The byte positions of all elements of a well-formed document, ordered by start tags."""
    parser = expat.ParserCreate("utf-8")
    starts: list[int] = []
    ends: list[int] = []
    open_elements: list[int] = []

    def start(_name: str, _attributes: object) -> None:
        open_elements.append(len(starts))
        starts.append(parser.CurrentByteIndex)
        ends.append(-1)

    def end(_name: str) -> None:
        element = open_elements.pop()
        tag_end = end_of_tag(data, starts[element])
        if data[tag_end - 2] == ord("/"):
            ends[element] = tag_end
        else:
            ends[element] = data.index(b">", parser.CurrentByteIndex) + 1

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.Parse(data, True)
    return [Span(*pair) for pair in zip(starts, ends, strict=True)]


def end_of_tag(data: bytes, start: int) -> int:
    """The position after the ``>`` of the start tag at ``start``."""
    found = TAG.match(data, start)
    if found is None:
        raise ValueError(f"no tag at byte {start}")
    return found.end()


def check_references(unit: "etree._Element", name: str) -> None:
    """Raise an error for a unit with entity references, as readers do."""
    refuse_references(unit, name)


def _codec_and_mark(data: bytes, encoding: str | None) -> tuple[str, bytes]:
    name = codec_name(encoding or xml_encoding(data[:1024])).removesuffix("-sig")
    for plain, marks in (
        ("utf-8", {"utf-8": codecs.BOM_UTF8}),
        ("utf-16", {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}),
        ("utf-32", {"utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE}),
    ):
        for specific, mark in marks.items():
            if name in (plain, specific) and data.startswith(mark):
                return specific, mark
    return name, b""
