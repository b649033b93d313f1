"""``.resx`` resources of .NET: the texts of ``data`` elements."""

from typing import TYPE_CHECKING

from heedful.data.documents.base import Edit
from heedful.data.documents.xml import XmlDocument, check_references
from heedful.data.readers.markup import Segment

if TYPE_CHECKING:
    from lxml import etree

_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


class ResxDocument(XmlDocument):
    """The texts of a resource file; binary resources and file references are kept."""

    def __init__(self, data: bytes, name: str, encoding: str | None = None) -> None:
        super().__init__(data, name, encoding, ".resx")
        self._values: list[etree._Element] = []
        for element in self.root.iterchildren("data"):
            value = next(element.iterchildren("value"), None)
            if value is None or element.get("type") or element.get("mimetype"):
                continue
            check_references(element, name)
            text = value.text or ""
            if text.strip() and not str(element.get("name", "")).startswith(">>"):
                self.add_segment(Segment(text, ()))
                self.contexts.append(element.get("name"))
                self._values.append(value)

    def edit(self, place: int, content: str) -> Edit:
        """See `XmlDocument.edit`."""
        value = self._values[place]
        start, end = self.span(value)
        return Edit(start, end, f"{self.start_tag(value)}{content}</value>")
