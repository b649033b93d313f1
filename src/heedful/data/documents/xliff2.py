"""XLIFF 2.0 to 2.2 documents: segments whose target is empty or absent."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.basics.errors import UserError
from heedful.data.documents.base import Edit
from heedful.data.documents.xml import XmlDocument, check_references
from heedful.data.readers.languages import takes
from heedful.data.readers.markup import read_segment
from heedful.data.readers.xliff import missing_language
from heedful.data.readers.xliff2 import REVIEW, is_translatable, languages_of
from heedful.data.readers.xliff2_rules import check_xliff2
from heedful.data.readers.xliff2_structure import LANGUAGE

if TYPE_CHECKING:
    from lxml import etree

_STATE = re.compile(r"""\s(?:state|subState)\s*=\s*(?:"[^"]*"|'[^']*')""")
STATES = {
    None: f'state="initial" subState="{REVIEW}"',
    "exact": 'state="translated" subState="heedful:exact-match"',
    "context": 'state="translated" subState="heedful:id-match"',
}
"""The attributes of a segment, by the kind of memory match of its target."""


class Xliff2Document(XmlDocument):
    """The translatable segments without a target."""

    def __init__(
        self, data: bytes, name: str, source: str | None, target: str | None, encoding: str | None
    ) -> None:
        super().__init__(data, name, encoding, "XLIFF")
        self._segments: list[etree._Element] = []
        codes = languages_of(self.root, name)
        self._target = target
        check_xliff2(self.root, name)
        for wanted, code in zip((source, target), codes, strict=True):
            if wanted is not None and code and not takes(wanted, code):
                raise missing_language(name, source, target, {code for code in codes if code})
        for unit in self.root.iter("{*}unit"):
            check_references(unit, name)
            for segment in unit.iterchildren("{*}segment"):
                if is_translatable(segment):
                    self._add(unit, segment)

    def _add(self, unit: "etree._Element", segment: "etree._Element") -> None:
        source = next(segment.iterchildren("{*}source"), None)
        target = next(segment.iterchildren("{*}target"), None)
        if source is None:
            raise UserError(f"{self.name}: unit {unit.get('id')} has a segment without a source")
        text = read_segment(source)
        if text.text.strip() and (target is None or not read_segment(target).text.strip()):
            self.add_segment(text)
            self.contexts.append(unit.get("id"))
            self._segments.append(segment)

    def edits_of_root(self) -> Sequence[Edit]:
        """The target language, without which a document may have no targets."""
        language = (self._target or "").replace("_", "-")
        if self.root.get("trgLang") is not None or not re.fullmatch(LANGUAGE, language):
            return ()
        end = self.span(self.root).start + len(self.start_tag(self.root).encode("utf-8")) - 1
        return (Edit(end, end, f' trgLang="{language}"'),)

    def edit(self, place: int, content: str) -> Edit:
        """See `XmlDocument.edit`."""
        segment = self._segments[place]
        source = next(segment.iterchildren("{*}source"))
        target = next(segment.iterchildren("{*}target"), None)
        prefix = f"{source.prefix}:" if source.prefix else ""
        start, end = self.span(segment)
        opening = self.start_tag(segment)
        inside_start = start + len(opening.encode("utf-8"))
        inside = self._bytes[inside_start:end]
        own = f"<{prefix}target>{content}</{prefix}target>"
        if target is None:
            at = self.span(source).end - inside_start
            own = self.indentation(source) + own
            changed = inside[:at] + own.encode("utf-8") + inside[at:]
        else:
            first, last = (one - inside_start for one in self.span(target))
            tag = self.start_tag(target).removesuffix(">").removesuffix("/").rstrip()
            own = f"{tag}>{content}</{prefix}target>"
            changed = inside[:first] + own.encode("utf-8") + inside[last:]
        opening = _STATE.sub("", opening[:-1]) + f" {STATES[self.matches[place]]}>"
        return Edit(start, end, opening + changed.decode("utf-8"))
