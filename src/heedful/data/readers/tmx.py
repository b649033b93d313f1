"""TMX 1.4, the exchange format of translation memories (and 1.1 to 1.3, which it includes)."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.data.readers.languages import choose, not_in_file
from heedful.data.readers.markup import XML_NAMESPACE, read_segment
from heedful.data.readers.opening import Input
from heedful.data.readers.xml import stream_elements

if TYPE_CHECKING:
    from lxml import etree

REVIEW_TYPE = "x-review"
REVIEW_TEXT = "needs-review"


def read_tmx(
    file: Input,
    source: str | None,
    target: str | None,
    encoding: str | None,
    left_out: Counter[str],
) -> Iterator[Pair]:
    """Read pairs from translation units that have both languages.

    The default source language is that of the header. Without a target language, the first unit
    must have exactly one other language.

    Raises:
        UserError: the XML is invalid, or no unit has a language.
    """
    seen: Counter[str] = Counter()
    found = [False, False]
    for event, element in stream_elements(file, encoding, "TMX", ("tmx", "header"), ("tu",)):
        if event == "start":
            said = element.get("srclang", "*all*")
            source = source or (said if said.casefold() != "*all*" else None)
            continue
        variants = unit_variants(element)
        codes = [code for code, _ in variants]
        seen.update(codes)
        source, target = _guess(file.name, element, codes, source, target)
        sides = [None if wanted is None else choose(wanted, codes) for wanted in (source, target)]
        found = [there or side is not None for there, side in zip(found, sides, strict=True)]
        if sides[0] is None or sides[1] is None:
            left_out["units without both languages"] += 1
            continue
        pair = _pair(variants[sides[0]][1], variants[sides[1]][1], left_out)
        if pair is not None:
            yield pair
    for wanted, there in zip((source, target), found, strict=True):
        if wanted is not None and seen and not there:
            raise not_in_file(wanted, file.name, seen)


def unit_variants(unit: "etree._Element") -> list[tuple[str, "etree._Element"]]:
    """Language code and element of each ``tuv`` of a unit (TMX before 1.4 wrote ``lang``)."""
    return [
        (tuv.get(f"{{{XML_NAMESPACE}}}lang") or tuv.get("lang") or "", tuv)
        for tuv in unit.iterchildren("{*}tuv")
    ]


def _guess(
    name: str, unit: "etree._Element", codes: list[str], source: str | None, target: str | None
) -> tuple[str | None, str | None]:
    """Both languages, if the unit has the known one and exactly one other."""
    known = source or target
    if source is not None and target is not None:
        return source, target
    if known is not None and choose(known, codes) is None:
        return source, target
    others = sorted({code for code in codes if known is None or choose(known, [code]) is None})
    if known is None or len(others) != 1:
        raise UserError(
            f"{name}:{unit.sourceline}: the languages are ambiguous; give source and target "
            f"(--from, --to); this unit has: {', '.join(sorted(set(codes))) or 'none'}"
        )
    return source or others[0], target or others[0]


def _pair(
    source: "etree._Element", target: "etree._Element", left_out: Counter[str]
) -> Pair | None:
    texts = [next(tuv.iterchildren("{*}seg"), None) for tuv in (source, target)]
    if any(needs_review(tuv) for tuv in (source, target)):
        left_out["marked for review"] += 1
        return None
    if texts[0] is None or texts[1] is None:
        left_out["untranslated"] += 1
        return None
    pair = Pair(read_segment(texts[0]).text, read_segment(texts[1]).text)
    if not pair.target.strip():
        left_out["untranslated"] += 1
        return None
    return pair


def needs_review(tuv: "etree._Element") -> bool:
    """Whether a machine filled a variant and nobody has reviewed it."""
    return any(
        prop.get("type") == REVIEW_TYPE and (prop.text or "").strip() == REVIEW_TEXT
        for prop in tuv.iterchildren("{*}prop")
    )
