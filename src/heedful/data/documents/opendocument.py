"""OpenDocument: ODT, ODS and ODP. Paragraphs have words and elements, as in HTML."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from heedful.basics.errors import UserError
from heedful.data.documents.archive import Archive, ArchiveDocument
from heedful.data.documents.base import Document
from heedful.data.documents.inline_parts import InlinePart
from heedful.data.documents.inline_pieces import Fragment, Markup, Piece, Words
from heedful.data.documents.marked import WHITE_SPACE
from heedful.data.readers.markup import ESCAPES

if TYPE_CHECKING:
    from lxml import etree

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_PARAGRAPHS = frozenset({f"{_TEXT}p", f"{_TEXT}h"})
_CONTAINERS = frozenset({f"{_TEXT}span", f"{_TEXT}a", f"{_TEXT}meta"})
_RUBY, _RUBY_BASE = f"{_TEXT}ruby", f"{_TEXT}ruby-base"
_SPACE = f"{_TEXT}s"
_DROPPED = f"{_TEXT}soft-page-break"
_SKIPPED = f"{_TEXT}tracked-changes"
_RANGE = re.compile(r"(.*)-(start|end)$")


class OpenDocumentPart(InlinePart):
    """The paragraphs and headings of ``content.xml`` or ``styles.xml``."""

    def paragraphs(self, root: "etree._Element") -> Iterator[tuple["etree._Element", list[Piece]]]:
        for child in root:
            if child.tag in _PARAGRAPHS:
                pieces: list[Piece] = []
                yield from self._children(child, pieces)
                start, end = self.inside(child)
                if start < end:
                    yield child, pieces
            elif child.tag != _SKIPPED:
                yield from self.paragraphs(child)

    def range_of(self, paragraph: "etree._Element") -> tuple[int, int]:
        return self.inside(paragraph)

    def written(self, words: str, style: str, paragraph: "etree._Element") -> str:
        return words.translate(ESCAPES)

    def _children(
        self, element: "etree._Element", pieces: list[Piece]
    ) -> Iterator[tuple["etree._Element", list[Piece]]]:
        """Add the pieces of a paragraph or a container; returns the paragraphs inside of them."""
        pieces.append(_words(element.text))
        for child in element:
            found = _RANGE.match(str(child.tag))
            start, end = self.span(child)
            first, last = self.inside(child)
            if child.tag in _CONTAINERS and first < last:
                pieces.append(Markup("open", (Fragment("", start, first),)))
                yield from self._children(child, pieces)
                pieces.append(Markup("close", (Fragment("", last, end),)))
            elif child.tag == _RUBY:  # a changed text loses the readings above it
                for base in child.iterchildren(_RUBY_BASE):
                    yield from self._children(base, pieces)
            elif found:
                identity = child.get(f"{_TEXT}name") or child.get(f"{_TEXT}id") or ""
                kind = "open" if found[2] == "start" else "close"
                pieces.append(Markup(kind, self.whole(child).fragments, f"{found[1]} {identity}"))
            elif child.tag != _DROPPED:
                is_field = bool((child.text or "").strip()) and not len(child)
                kind = "space" if child.tag == _SPACE else "whole" if is_field else "alone"
                pieces.append(self.whole(child, kind))
                yield from self.paragraphs(child)
            pieces.append(_words(child.tail))


class OpenDocument(ArchiveDocument):
    """The texts of an ODT, ODS or ODP file, with headers and footers."""

    def parts(self, archive: Archive) -> Iterator[tuple[str, Document]]:
        manifest = "META-INF/manifest.xml"
        if manifest in archive.names and b"encryption-data" in archive.read(manifest):
            raise UserError(f"{self.name} is encrypted; remove its password first")
        yield "content.xml", self._part(archive, "content.xml")
        if "styles.xml" in archive.names:
            yield "styles.xml", self._part(archive, "styles.xml")

    def _part(self, archive: Archive, name: str) -> OpenDocumentPart:
        return OpenDocumentPart(archive.read(name), f"{self.name}: {name}")


def _words(text: str | None) -> Words:
    return Words(WHITE_SPACE.sub(" ", text or ""), "")
