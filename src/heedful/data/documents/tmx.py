"""TMX documents: the target is added to units that lack it, marked for review by a ``prop``."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from heedful.data.documents.base import Edit
from heedful.data.documents.xml import XmlDocument, check_references
from heedful.data.readers.languages import choose, not_in_file, takes
from heedful.data.readers.markup import ATTRIBUTE_ESCAPES, read_segment
from heedful.data.readers.tmx import REVIEW_TEXT, REVIEW_TYPE, unit_variants

if TYPE_CHECKING:
    from lxml import etree


class TmxDocument(XmlDocument):
    """The units with the source language whose target is absent or empty.

    Args:
        data: the uncompressed bytes of the file.
        name: the name in messages.
        source: the source language.
        target: the target language.
        encoding: its encoding, if given.
        others: how often each code occurs in the whole file, for a part of it.
    """

    def __init__(
        self,
        data: bytes,
        name: str,
        source: str,
        target: str,
        encoding: str | None,
        others: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(data, name, encoding, "TMX")
        self._targets: list[tuple[etree._Element, etree._Element | None]] = []
        codes: Counter[str] = Counter()
        self.codes = codes
        """How often each language code occurs."""
        for unit in self.root.iter("{*}tu"):
            check_references(unit, name)
            codes.update(code for code, _ in unit_variants(unit))
            self._add(unit, source, target)
        if codes and choose(source, list(codes)) is None:
            raise not_in_file(source, name, codes)
        # New variants are written with the code that the file itself uses most for the language.
        found = Counter(others or codes).most_common()
        own = [code for code, _ in found if takes(target, code)]
        self._code = own[0] if own else target

    def edit(self, place: int, content: str) -> Edit:
        """See `XmlDocument.edit`."""
        unit, variant = self._targets[place]
        prefix = f"{unit.prefix}:" if unit.prefix else ""
        seg = f"<{prefix}seg>{content}</{prefix}seg>"
        prop = ""
        if self.matches[place] is None:
            prop = f'<{prefix}prop type="{REVIEW_TYPE}">{REVIEW_TEXT}</{prefix}prop>'
        if variant is None:
            return self._new(unit, seg, prop, prefix)
        return self._refill(variant, seg, prop, prefix)

    def _add(self, unit: "etree._Element", source: str, target: str) -> None:
        variants = unit_variants(unit)
        codes = [code for code, _ in variants]
        source_place, target_place = choose(source, codes), choose(target, codes)
        if source_place is None:
            return
        source_seg = next(variants[source_place][1].iterchildren("{*}seg"), None)
        if source_seg is None:
            return
        segment = read_segment(source_seg)
        variant = None if target_place is None else variants[target_place][1]
        seg = None if variant is None else next(variant.iterchildren("{*}seg"), None)
        if segment.text.strip() and (seg is None or not read_segment(seg).text.strip()):
            self.add_segment(segment)
            self._targets.append((unit, variant))

    def _new(self, unit: "etree._Element", seg: str, prop: str, prefix: str) -> Edit:
        last = list(unit.iterchildren("{*}tuv"))[-1]
        place = self.span(last).end
        outer = self.indentation(last)
        child = next(last.iterchildren("*"), None)
        inner = "" if child is None else self.indentation(child)
        is_old = last.get("lang") is not None
        code = self._code.translate(ATTRIBUTE_ESCAPES)
        text = (
            f'{outer}<{prefix}tuv {"lang" if is_old else "xml:lang"}="{code}">'
            f"{inner + prop if prop else ''}{inner}{seg}{outer}</{prefix}tuv>"
        )
        return Edit(place, place, text)

    def _refill(self, variant: "etree._Element", seg: str, prop: str, prefix: str) -> Edit:
        own = next(variant.iterchildren("{*}seg"), None)
        if own is not None:
            start, end = self.span(own)
            before = prop + self.indentation(own) if prop else ""
            return Edit(start, end, before + seg)
        start, end = self.span(variant)
        opening = self.start_tag(variant)
        tag = opening.removesuffix(">").removesuffix("/").rstrip()
        kept = "" if opening.endswith("/>") else self._inside(variant)
        return Edit(start, end, f"{tag}>{kept}{prop}{seg}</{prefix}tuv>")

    def _inside(self, element: "etree._Element") -> str:
        start, end = self.span(element)
        opening_end = start + len(self.start_tag(element).encode("utf-8"))
        return self._bytes[opening_end : self._bytes.rindex(b"</", start, end)].decode("utf-8")
