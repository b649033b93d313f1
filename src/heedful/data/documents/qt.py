"""Qt Linguist's ``.ts``: messages whose translation is empty."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from heedful.data.documents.base import Edit, Entry, without_forbidden
from heedful.data.documents.xml import XmlDocument, check_references
from heedful.data.readers.markup import read_segment

if TYPE_CHECKING:
    from lxml import etree


_UNFINISHED = ' type="unfinished"'


class QtDocument(XmlDocument):
    """The messages with an empty translation; only matches of a memory are finished."""

    bilingual: ClassVar[bool] = True

    def __init__(self, data: bytes, name: str, encoding: str | None = None) -> None:
        super().__init__(data, name, encoding, "TS")
        self._targets: list[etree._Element] = []
        self._filled_places: list[int] = []
        for message in self.root.iter("message"):
            source = next(message.iterchildren("source"), None)
            target = next(message.iterchildren("translation"), None)
            if source is None or target is None or target.get("type") in ("obsolete", "vanished"):
                continue
            check_references(message, name)
            forms = list(target.iterchildren("numerusform"))
            for own in forms or [target]:
                segment, written = read_segment(source), read_segment(own).text
                if segment.text.strip():
                    self.entries.append(Entry(f"line {own.sourceline}", segment.text, written))
                if segment.text.strip() and not written.strip():
                    self.add_segment(segment)
                    comment = next(message.iterchildren("comment"), None)
                    self.contexts.append(None if comment is None else comment.text)
                    self._targets.append(own)

    def _with(self, translations: Sequence[str]) -> bytes:
        written = (without_forbidden(one)[0].strip() for one in translations)
        self._filled_places = [place for place, one in enumerate(written) if one]
        return super()._with(translations)

    def edits_of_root(self) -> Sequence[Edit]:
        """The marks of plural messages, which stand around their forms."""
        forms = (self._targets[one] for one in self._filled_places if self.matches[one] is None)
        parents = {form.getparent() for form in forms if form.tag == "numerusform"}
        starts = [
            self.span(one).start + len(self.start_tag(one).encode("utf-8")) - 1
            for one in parents
            if one is not None and one.get("type") is None
        ]
        return [Edit(start, start, _UNFINISHED) for start in starts]

    def edit(self, place: int, content: str) -> Edit:
        """See `XmlDocument.edit`."""
        target = self._targets[place]
        start, end = self.span(target)
        opening = self.start_tag(target).removesuffix(">").removesuffix("/").rstrip()
        if target.tag == "translation" and self.matches[place] is not None:
            opening = re.sub(r"""\s+type\s*=\s*(?:"unfinished"|'unfinished')""", "", opening)
        elif target.tag == "translation" and target.get("type") is None:
            opening += _UNFINISHED
        return Edit(start, end, f"{opening}>{content}</{target.tag!s}>")
