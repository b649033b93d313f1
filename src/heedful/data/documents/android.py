"""Android's ``strings.xml``: ``string``, ``plurals`` and ``string-array``."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.data.documents.base import Edit, joined_surrogates
from heedful.data.documents.xml import XmlDocument, check_references
from heedful.data.readers.markup import Segment, read_segment, split_codes

if TYPE_CHECKING:
    from lxml import etree

_TOKEN = re.compile(
    r"""\\u(?P<code>[0-9A-Fa-f]{4})|\\(?P<named>.)|(?P<quote>")|(?P<space>[ \t\n\r\f\v]+)|."""
    r"""[^\\" \t\n\r\f\v]*""",
    re.DOTALL,
)
_WHITE = " \t\n\r\f\v"
_NAMED = {"n": "\n", "t": "\t"}
_QUOTED = re.compile(r'\s*"((?:[^"\\]|\\.)*)"\s*', re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_WRITTEN = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\t": "\\t"}
_SPACE = "\\u0020"
_KEPT = ("{urn:oasis:names:tc:xliff:document:1.2}g",)
"""The element around words that are not to be translated."""


class AndroidDocument(XmlDocument):
    """The texts of a resource file, except those with ``translatable="false"``."""

    def __init__(self, data: bytes, name: str, encoding: str | None = None) -> None:
        super().__init__(data, name, encoding, "XML")
        self._elements: list[etree._Element] = []
        self._quotes: list[str] = []
        self._are_protected: list[bool] = []
        for element in self.root.iterchildren("string", "plurals", "string-array"):
            if element.get("translatable") == "false":
                continue
            for own in [element] if element.tag == "string" else element.iterchildren("item"):
                self._add(own)

    def _add(self, element: "etree._Element") -> None:
        check_references(element, self.name)
        raw = read_segment(element, None, _KEPT)
        pieces = split_codes(raw.text, raw.codes)
        text, is_protected = _value(pieces)
        is_reference = re.fullmatch(r"\s*[@?][\w:./]+\s*", raw.text)
        if text.strip() and not is_reference:
            self.add_segment(Segment(text, raw.codes))
            self.contexts.append(element.get("name"))
            self._elements.append(element)
            self._quotes.append('"' if _is_quoted(pieces) else "")
            self._are_protected.append(is_protected)

    def edit(self, place: int, content: str) -> Edit:
        """See `XmlDocument.edit`."""
        element = self._elements[place]
        start, end = self.span(element)
        opening = self.start_tag(element)
        quote = self._quotes[place]
        # Line feeds are written as escapes, except in codes.
        pieces = split_codes(content.replace(self._newline, "\n"), self._codes[place])
        written = _written(pieces, self._are_protected[place] and not quote)
        written = written.replace("\n", self._newline)
        if not quote and written[:1] in ("@", "?"):
            written = "\\" + written
        return Edit(start, end, f"{opening}{quote}{written}{quote}</{element.tag!s}>")


def _is_quoted(pieces: Sequence[str]) -> bool:
    """Whether the only quotes of a text that are not escaped are around it."""
    starts, ends = pieces[0].lstrip().startswith('"'), pieces[-1].rstrip().endswith('"')
    return starts and ends and _QUOTED.fullmatch("".join(pieces[::2])) is not None


def _value(pieces: Sequence[str]) -> tuple[str, bool]:
    """The text that Android shows; also whether the file protects white space in it.

    Otherwise white space is one space, and none at both ends. Quotes, which are not part of the
    text, and escapes protect it.

    Args:
        pieces: words and codes in turn.
    """
    parts: list[str] = []
    quoted = is_protected = False
    joins, last = True, -1  # whether further white space is dropped; the place of the last space
    for number, piece in enumerate(pieces):
        is_space = piece != "" and not piece.strip(_WHITE) and not quoted
        is_between = is_space and 0 < number < len(pieces) - 1
        if number % 2 or is_between:  # white space alone between codes stays
            parts.append(" " if is_between else piece)
            joins = joins and _TAG.fullmatch(piece) is not None
            continue
        for found in _TOKEN.finditer(piece):
            space = found["space"] is not None and not quoted
            if space and joins:
                continue
            joins = space
            if space:
                last = len(parts)
                parts.append(" ")
            elif found["quote"]:
                quoted, is_protected = not quoted, True
            else:
                own = _unescaped(found)
                parts.append(own)
                is_protected = is_protected or (own.isspace() and own.isascii())
    if joins and last >= 0:
        parts[last] = ""
    return joined_surrogates("".join(parts)), is_protected


def _written(pieces: Sequence[str], is_protected: bool) -> str:
    """A translation with escapes.

    Args:
        pieces: words and codes in turn.
        is_protected: whether Android must show all its white space.
    """
    parts: list[str] = []
    joins, last = True, -1
    for number, piece in enumerate(pieces):
        if number % 2 or (piece == " " and 0 < number < len(pieces) - 1):
            parts.append(piece)
            joins = joins and _TAG.fullmatch(piece) is not None
            continue
        for character in piece:
            if character == " " and joins and is_protected:
                parts.append(_SPACE)
                joins = False
                continue
            joins = character == " "
            last = len(parts) if joins else last
            parts.append(_WRITTEN.get(character, character))
    if joins and last >= 0 and is_protected:
        parts[last] = _SPACE
    return "".join(parts)


def _unescaped(found: "re.Match[str]") -> str:
    if found["code"]:
        return chr(int(found["code"], 16))
    return _NAMED.get(found["named"], found["named"]) if found["named"] else found[0]
