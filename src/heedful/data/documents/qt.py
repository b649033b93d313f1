"""Qt Linguist's ``.ts``: messages whose translation is empty."""

import re
from typing import TYPE_CHECKING, ClassVar

from heedful.data.documents.base import Edit, Entry
from heedful.data.documents.xml import XmlDocument, check_references
from heedful.data.readers.markup import Segment

if TYPE_CHECKING:
    from lxml import etree


class QtDocument(XmlDocument):
    """The messages with an empty translation; only matches of a memory are finished."""

    bilingual: ClassVar[bool] = True

    def __init__(self, data: bytes, name: str, encoding: str | None = None) -> None:
        super().__init__(data, name, encoding, "TS")
        self._targets: list[etree._Element] = []
        for message in self.root.iter("message"):
            source = next(message.iterchildren("source"), None)
            target = next(message.iterchildren("translation"), None)
            if source is None or target is None or target.get("type") in ("obsolete", "vanished"):
                continue
            check_references(message, name)
            forms = list(target.iterchildren("numerusform"))
            for own in forms or [target]:
                text, written = source.text or "", own.text or ""
                if text.strip():
                    self.entries.append(Entry(f"line {own.sourceline}", text, written))
                if text.strip() and not written.strip():
                    self.add_segment(Segment(text, ()))
                    comment = next(message.iterchildren("comment"), None)
                    self.contexts.append(None if comment is None else comment.text)
                    self._targets.append(own)

    def edit(self, place: int, content: str) -> Edit:
        """See `XmlDocument.edit`."""
        target = self._targets[place]
        start, end = self.span(target)
        opening = self.start_tag(target).removesuffix(">").removesuffix("/").rstrip()
        if self.matches[place] is not None and target.tag == "translation":
            opening = re.sub(r"""\s+type\s*=\s*(?:"unfinished"|'unfinished')""", "", opening)
        return Edit(start, end, f"{opening}>{content}</{target.tag!s}>")
