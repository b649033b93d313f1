"""XLIFF 1.2 documents: empty targets are filled with ``state="needs-review-translation"``."""

import re
from typing import TYPE_CHECKING

from heedful.data.documents.base import Edit
from heedful.data.documents.xml import XmlDocument, check_references
from heedful.data.readers.markup import read_segment
from heedful.data.readers.xliff import (
    REVIEW_STATE,
    check_version,
    file_languages,
    is_header,
    is_translatable,
    match_direction,
    missing_language,
)

if TYPE_CHECKING:
    from lxml import etree

STATE = re.compile(r"""(\sstate\s*=\s*)(?:"[^"]*"|'[^']*')""")
STATES_BEFORE = re.compile(r"""\sstate(?:-qualifier)?\s*=\s*(?:"[^"]*"|'[^']*')""")
STATES = {
    None: f'state="{REVIEW_STATE}"',
    "exact": 'state="translated" state-qualifier="exact-match"',
    "context": 'state="translated" state-qualifier="id-match"',
}
"""The attributes of a target, by its kind of memory match."""


class XliffDocument(XmlDocument):
    """The translatable units with an empty or absent target, of files in these languages."""

    def __init__(
        self, data: bytes, name: str, source: str | None, target: str | None, encoding: str | None
    ) -> None:
        super().__init__(data, name, encoding, "XLIFF")
        check_version(self.root, name)
        self._units: list[etree._Element] = []
        files = list(self.root.iter("{*}file"))
        fitting = [file for file in files if match_direction(file, source, target) == "straight"]
        if files and not fitting:
            languages = {code for file in files for code in file_languages(file)}
            raise missing_language(name, source, target, languages)
        for file in fitting:
            for unit in file.iter("{*}trans-unit"):
                self._add(unit)

    def _add(self, unit: "etree._Element") -> None:
        source = next(unit.iterchildren("{*}source"), None)
        target = next(unit.iterchildren("{*}target"), None)
        if source is None or is_header(unit) or not is_translatable(unit):
            return
        check_references(unit, self.name)
        segment = read_segment(source)
        is_empty = target is None or not read_segment(target).text.strip()
        if segment.text.strip() and is_empty:
            self.add_segment(segment)
            self._units.append(unit)
            self.contexts.append(unit.get("id"))

    def edit(self, place: int, content: str) -> Edit:
        """See `XmlDocument.edit`."""
        unit = self._units[place]
        source = next(unit.iterchildren("{*}source"))
        target = next(unit.iterchildren("{*}target"), None)
        prefix = f"{source.prefix}:" if source.prefix else ""
        state = STATES[self.matches[place]]
        if target is None:
            before = next(unit.iterchildren("{*}seg-source"), source)
            start = self.span(before).end
            tag = f"{prefix}target {state}"
            text = f"{self.indentation(source)}<{tag}>{content}</{prefix}target>"
            return Edit(start, start, text)
        start, end = self.span(target)
        opening = self.start_tag(target).removesuffix(">").removesuffix("/").rstrip()
        if self.matches[place] is None:
            opening, found = STATE.subn(rf'\g<1>"{REVIEW_STATE}"', opening, count=1)
            opening = opening if found else f"{opening} {state}"
        else:
            opening = f"{STATES_BEFORE.sub('', opening)} {state}"
        name = re.split(r"[\s/>]", opening[1:], maxsplit=1)[0]
        return Edit(start, end, f"{opening}>{content}</{name}>")
