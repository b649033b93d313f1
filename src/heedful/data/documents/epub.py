"""EPUB: the pages of a book, its title, and its table of contents."""

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from heedful.basics.errors import UserError
from heedful.data.documents.archive import Archive, ArchiveDocument
from heedful.data.documents.base import Document, Edit
from heedful.data.documents.html import HtmlDocument
from heedful.data.documents.xml import XmlDocument, check_references
from heedful.data.readers.markup import Segment

if TYPE_CHECKING:
    from lxml import etree

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGE = "application/xhtml+xml"
_CONTENTS = "application/x-dtbncx+xml"
_TITLES = (
    "{http://purl.org/dc/elements/1.1/}title",
    "{http://purl.org/dc/elements/1.1/}description",
)
_LABEL = "{http://www.daisy.org/z3986/2005/ncx/}text"


class _Page(HtmlDocument):
    """A page, which is XML."""

    def is_xml(self) -> bool:
        return True


class _Labels(XmlDocument):
    """The texts of certain elements."""

    def __init__(self, data: bytes, name: str, tags: tuple[str, ...]) -> None:
        super().__init__(data, name, None, "EPUB")
        self._elements: list[etree._Element] = []
        for element in self.root.iter(*tags):
            check_references(element, name)
            if (element.text or "").strip() and not len(element):
                self.add_segment(Segment(element.text or "", ()))
                self.contexts.append(None)
                self._elements.append(element)

    def edit(self, place: int, content: str) -> Edit:
        """See `XmlDocument.edit`."""
        element = self._elements[place]
        start, end = self.span(element)
        tag = f"{element.prefix}:" if element.prefix else ""
        local = str(element.tag).rpartition("}")[2]
        return Edit(start, end, f"{self.start_tag(element)}{content}</{tag}{local}>")


class EpubDocument(ArchiveDocument):
    """The texts of the pages of a book, in the order of its manifest."""

    def parts(self, archive: Archive) -> Iterator[tuple[str, Document]]:
        container = self._labels(archive, _CONTAINER, ())
        books = [str(one.get("full-path", "")) for one in container.root.iter("{*}rootfile")]
        if not books:
            raise UserError(f"{self.name}: {_CONTAINER} names no book")
        hidden = self._encrypted(archive)
        done: set[str] = set()
        for book in books:
            labels = self._labels(archive, book, _TITLES)
            yield book, labels
            for item in labels.root.iter("{*}item"):
                place = posixpath.join(posixpath.dirname(book), unquote(item.get("href", "")))
                place, kind = posixpath.normpath(place), item.get("media-type")
                if kind not in (_PAGE, _CONTENTS) or place in done:
                    continue
                done.add(place)
                if place in hidden:
                    raise UserError(f"{self.name} is protected by encryption and cannot be read")
                if kind == _PAGE:
                    yield place, _Page(archive.read(place), f"{self.name}: {place}")
                else:
                    yield place, self._labels(archive, place, (_LABEL,))

    def _labels(self, archive: Archive, place: str, tags: tuple[str, ...]) -> _Labels:
        return _Labels(archive.read(place), f"{self.name}: {place}", tags or ("none",))

    def _encrypted(self, archive: Archive) -> frozenset[str]:
        if _ENCRYPTION not in archive.names:
            return frozenset()
        found = self._labels(archive, _ENCRYPTION, ()).root.iter("{*}CipherReference")
        return frozenset(posixpath.normpath(unquote(one.get("URI", ""))) for one in found)
