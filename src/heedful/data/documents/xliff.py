"""XLIFF 1.2 documents: empty targets are filled with ``state="needs-review-translation"``."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.data.documents.base import Edit
from heedful.data.documents.xml import XmlDocument, check_references
from heedful.data.readers.markup import read_segment
from heedful.data.readers.xliff import (
    REVIEW_STATE,
    check_version,
    empty_segments,
    file_languages,
    is_filled,
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
        self._parts: list[etree._Element | None] = []
        """The ``mrk`` of the target that a translation is written in; None for all of it."""
        self._segmented: dict[etree._Element, list[str | None]] = {}
        """Target whose ``mrk`` are filled → their kinds of memory match."""
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
        found: list[tuple[etree._Element, etree._Element | None]] = [*empty_segments(unit)]
        if not found and (target is None or not is_filled(target)):
            found = [(source, None)]
        for one, part in found:
            segment = read_segment(one)
            if segment.text.strip():
                self.add_segment(segment)
                self._units.append(unit)
                self._parts.append(part)
                self.contexts.append(unit.get("id"))

    def edit(self, place: int, content: str) -> Edit:
        """See `XmlDocument.edit`."""
        unit, part = self._units[place], self._parts[place]
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
        if part is None:
            filled, opening = target, self._marked(target, self.matches[place])
        else:
            filled, opening = part, self._opening(part)
            self._segmented.setdefault(target, []).append(self.matches[place])
        name = re.split(r"[\s/>]", opening[1:], maxsplit=1)[0]
        return Edit(*self.span(filled), f"{opening}>{content}</{name}>")

    def edits_of_root(self) -> Sequence[Edit]:
        """The marks of targets whose segments were filled."""
        edits = []
        for target, matches in self._segmented.items():
            start = self.span(target).start
            opening = self._marked(target, None if None in matches else matches[0])
            edits.append(Edit(start, start + len(self.start_tag(target).encode()), f"{opening}>"))
        self._segmented.clear()
        return edits

    def _opening(self, element: "etree._Element") -> str:
        """A start tag without its end."""
        return self.start_tag(element).removesuffix(">").removesuffix("/").rstrip()

    def _marked(self, target: "etree._Element", match: str | None) -> str:
        """The start tag of a target, without its end, with the state of a memory match."""
        opening = self._opening(target)
        if match is not None:
            return f"{STATES_BEFORE.sub('', opening)} {STATES[match]}"
        opening, found = STATE.subn(rf'\g<1>"{REVIEW_STATE}"', opening, count=1)
        return opening if found else f"{opening} {STATES[None]}"
