"""XLIFF 2.0 to 2.2 documents: segments whose target is empty or absent."""

import re
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from heedful.basics.errors import UserError
from heedful.data.documents.base import Edit, without_forbidden
from heedful.data.documents.xml import XmlDocument, check_references, edited
from heedful.data.readers.languages import takes
from heedful.data.readers.markup import ATTRIBUTE_ESCAPES, read_segment, write_segment
from heedful.data.readers.xliff import missing_language
from heedful.data.readers.xliff2 import REVIEW, is_translatable, languages_of
from heedful.data.readers.xliff2_rules import check_xliff2, problems_of_unit
from heedful.data.readers.xliff2_structure import LANGUAGE, XML
from heedful.data.readers.xml import SAFE

if TYPE_CHECKING:
    from lxml import etree

_STATE = re.compile(r"""\s(?:state|subState)\s*=\s*(?:"[^"]*"|'[^']*')""")
_SPACE = re.compile(r"""\sxml:space\s*=\s*(?:"[^"]*"|'[^']*')""")
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
        self._places: dict[etree._Element, list[int]] = {}  # unit → its segments
        self._orders: dict[etree._Element, int] = {}  # segment → the order of its new target
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
            self._number(unit)

    def _add(self, unit: "etree._Element", segment: "etree._Element") -> None:
        source = next(segment.iterchildren("{*}source"), None)
        target = next(segment.iterchildren("{*}target"), None)
        if source is None:
            raise UserError(f"{self.name}: unit {unit.get('id')} has a segment without a source")
        text = read_segment(source)
        if text.text.strip() and (target is None or not read_segment(target).text.strip()):
            self.add_segment(text)
            self.contexts.append(unit.get("id"))
            self._places.setdefault(unit, []).append(len(self._segments))
            self._segments.append(segment)

    def _number(self, unit: "etree._Element") -> None:
        """Choose free orders for new targets if a target of the unit has one.

        The order of a target without the attribute is its position, which another may have.
        """
        parts = list(unit.iterchildren("{*}segment", "{*}ignorable"))
        targets = [next(part.iterchildren("{*}target"), None) for part in parts]
        if not any(target is not None and target.get("order") for target in targets):
            return
        taken = {
            int(target.get("order", position))
            for position, target in enumerate(targets, start=1)
            if target is not None
        }
        free = (number for number in count(1) if number not in taken)
        for part, target in zip(parts, targets, strict=True):
            if target is None:
                self._orders[part] = next(free)

    def accepts(self, place: int, translation: str) -> bool:
        """Whether the codes are those of the source, in an order that XLIFF 2 allows."""
        text, _ = without_forbidden(translation)
        codes, segment = self._codes[place], self._segments[place]
        if not super().accepts(place, translation):
            return False
        if not codes or not text.strip():
            return True
        # Codes that belong to those of other segments are problems of the source as well.
        own, new = (write_segment(one, codes)[0] for one in (self.segments[place], text))
        tag = f"{segment.prefix}:" if segment.prefix else ""
        before = f'<{tag}unit id="u"><{tag}segment><{tag}source>{own}</{tag}source><{tag}target>'
        after = f"</{tag}target></{tag}segment></{tag}unit>"
        problems = [_problems(segment, f"{before}{one}{after}".encode()) for one in (own, new)]
        return problems[1] <= problems[0]

    def _with(self, translations: Sequence[str]) -> bytes:
        return super()._with(self._valid(translations))

    def _valid(self, translations: Sequence[str]) -> list[str]:
        """The translations, without those with codes in units that would become invalid.

        Codes can belong to those of another segment, which has no translation, or other codes.
        """
        chosen = list(translations)
        refused = 0
        for unit, places in self._places.items():
            filled = [place for place in places if translations[place].strip()]
            coded = [place for place in filled if self._codes[place]]
            if not coded:
                continue
            start, end = self.span(unit)
            edits = [
                self.edit(place, write_segment(text, self._codes[place])[0])
                for place in filled
                if (text := without_forbidden(translations[place])[0]).strip()
            ]
            moved = [Edit(one.start - start, one.end - start, one.text) for one in edits]
            if _problems(unit, edited(self._bytes[start:end], moved)):
                refused += len(coded)
                for place in coded:
                    chosen[place] = ""
        if refused:
            self.report(
                refused,
                "segments were left untranslated, because the inline codes of their units' targets "
                "would not be valid XLIFF 2",
            )
        return chosen

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
        space = source.get(f"{XML}space")
        own_space = f' xml:space="{space}"' if space else ""
        if target is None:
            order = f' order="{self._orders[segment]}"' if segment in self._orders else ""
            own = f"<{prefix}target{own_space}{order}>{content}</{prefix}target>"
            at = self.span(source).end - inside_start
            own = self.indentation(source) + own
            changed = inside[:at] + own.encode("utf-8") + inside[at:]
        else:
            first, last = (one - inside_start for one in self.span(target))
            tag = self.start_tag(target).removesuffix(">").removesuffix("/").rstrip()
            if target.get(f"{XML}space") != space:
                tag = _SPACE.sub("", tag) + own_space
            own = f"{tag}>{content}</{prefix}target>"
            changed = inside[:first] + own.encode("utf-8") + inside[last:]
        opening = _STATE.sub("", opening[:-1]) + f" {STATES[self.matches[place]]}>"
        return Edit(start, end, opening + changed.decode("utf-8"))


def _problems(scope: "etree._Element", unit: bytes) -> int:
    """The number of rules that a unit breaks, which is in the scope of an element's namespaces."""
    from lxml import etree

    names = (
        f'xmlns{f":{prefix}" if prefix else ""}="{uri.translate(ATTRIBUTE_ESCAPES)}"'
        for prefix, uri in scope.nsmap.items()
    )
    document = b"<units %s>%s</units>" % (" ".join(names).encode(), unit)
    try:
        root = etree.fromstring(document, etree.XMLParser(encoding="utf-8", **SAFE))
    except etree.XMLSyntaxError:
        return 1
    return sum(1 for _ in problems_of_unit(root[0]))
