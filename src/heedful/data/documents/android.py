"""Android's ``strings.xml``: ``string``, ``plurals`` and ``string-array``."""

import re
from typing import TYPE_CHECKING

from heedful.data.documents.base import Edit, joined_surrogates
from heedful.data.documents.xml import XmlDocument, check_references
from heedful.data.readers.markup import Segment, read_segment

if TYPE_CHECKING:
    from lxml import etree

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t"}
_QUOTED = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*', re.DOTALL)
_SPACE = re.compile(r"\s+")
_WRITTEN = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\t": "\\t"}


class AndroidDocument(XmlDocument):
    """The texts of a resource file, except those with ``translatable="false"``."""

    def __init__(self, data: bytes, name: str, encoding: str | None = None) -> None:
        super().__init__(data, name, encoding, "XML")
        self._elements: list[etree._Element] = []
        self._quotes: list[str] = []
        for element in self.root.iterchildren("string", "plurals", "string-array"):
            if element.get("translatable") == "false":
                continue
            for own in [element] if element.tag == "string" else element.iterchildren("item"):
                self._add(own)

    def _add(self, element: "etree._Element") -> None:
        check_references(element, self.name)
        raw = read_segment(element)
        # White space is one space, except in quotes, which are not part of the text.
        quoted = _QUOTED.fullmatch(raw.text)
        plain = quoted[1] if quoted else _SPACE.sub(" ", raw.text).strip()
        text = joined_surrogates(_ESCAPE.sub(_unescaped, plain))
        is_reference = re.fullmatch(r"\s*[@?][\w:./]+\s*", raw.text)
        if text.strip() and not is_reference:
            self.add_segment(Segment(text, raw.codes))
            self.contexts.append(element.get("name"))
            self._elements.append(element)
            self._quotes.append('"' if quoted else "")

    def edit(self, place: int, content: str) -> Edit:
        """See `XmlDocument.edit`."""
        element = self._elements[place]
        start, end = self.span(element)
        opening = self.start_tag(element)
        pieces = re.split(r"(<[^>]*>)", content)
        written = "".join(
            piece if number % 2 else "".join(_WRITTEN.get(c, c) for c in piece)
            for number, piece in enumerate(pieces)
        )
        quote = self._quotes[place]
        if not quote and written[:1] in ("@", "?"):
            written = "\\" + written
        return Edit(start, end, f"{opening}{quote}{written}{quote}</{element.tag!s}>")


def _unescaped(found: "re.Match[str]") -> str:
    return chr(int(found[1], 16)) if found[1] else _NAMED.get(found[2], found[2])
