"""XLIFF, the exchange format of localisation: 1.0 to 1.2, and 2.0 to 2.2 by `xliff2`."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.data.readers.languages import not_in_file, related, takes
from heedful.data.readers.markup import read_segment
from heedful.data.readers.opening import Input
from heedful.data.readers.xliff2 import is_version_2, read_segments
from heedful.data.readers.xliff2 import languages_of as xliff2_languages
from heedful.data.readers.xliff2_rules import check_xliff2
from heedful.data.readers.xml import stream_elements

if TYPE_CHECKING:
    from lxml import etree

REVIEW_STATE = "needs-review-translation"
NOT_YET = frozenset({"new", "needs-translation"})


def read_xliff(
    file: Input,
    source: str | None,
    target: str | None,
    encoding: str | None,
    left_out: Counter[str],
) -> Iterator[Pair]:
    """Read pairs of translated units; the sides of a file of the other direction are exchanged.

    A document of XLIFF 2 is read as a whole and checked before its first pair is yielded.

    Raises:
        UserError: the XML or the XLIFF 2 is invalid, the version is unknown, or a language is
            missing.
    """
    languages: set[str] = set()
    read_any, turned, skipped = False, False, False
    ends = ("trans-unit", "segment")
    events = stream_elements(file, encoding, "XLIFF", ("xliff", "file"), ends, is_version_2)
    for event, element in events:
        if event == "start":
            if is_root(element) and is_version_2(element):
                codes = xliff2_languages(element, file.name)
                for _ in events:
                    pass
                check_xliff2(element, file.name)
                pairs = read_segments(element.iter("{*}segment"), codes, (source, target), left_out)
                if pairs is None:
                    raise missing_language(file.name, source, target, set(filter(None, codes)))
                yield from pairs
                return
            if is_root(element):
                check_version(element, file.name)
                continue
            languages.update(file_languages(element))
            direction = match_direction(element, source, target)
            turned, skipped = direction == "turned", direction is None
            read_any = read_any or not skipped
        elif skipped:
            left_out["in other languages"] += 1
        else:
            pair = _pair(element, left_out)
            if pair is not None:
                yield Pair(pair.target, pair.source) if turned else pair
    if languages and not read_any:
        raise missing_language(file.name, source, target, languages)


def is_root(element: "etree._Element") -> bool:
    """Whether the element is the document's ``xliff``."""
    return str(element.tag).rsplit("}", 1)[-1] == "xliff"


def check_version(root: "etree._Element", name: str) -> None:
    """Check the version of a document that is not XLIFF 2.

    Raises:
        UserError: the version is not 1.x.
    """
    version = root.get("version", "1.2")
    if not version.startswith("1."):
        raise UserError(
            f"{name} is XLIFF {version}, which is not supported; save it as XLIFF 1.2 or 2.1"
        )


def file_languages(element: "etree._Element") -> list[str]:
    """The languages that a ``file`` element declares."""
    return [
        code
        for name in ("source", "target")
        if (code := element.get(f"{name}-language", "").strip())
    ]


def match_direction(
    element: "etree._Element", source: str | None, target: str | None
) -> str | None:
    """The direction of a ``file`` element: ``straight``, ``turned`` (the other direction) or None.

    A file without a target language matches any.
    """
    from_code = element.get("source-language", "").strip()
    to_code = element.get("target-language", "").strip()

    def fits(wanted: str | None, code: str) -> bool:
        return wanted is None or not code or takes(wanted, code)

    if fits(source, from_code) and fits(target, to_code):
        return "straight"
    if to_code and fits(source, to_code) and fits(target, from_code):
        return "turned"
    return None


def missing_language(
    name: str, source: str | None, target: str | None, languages: set[str]
) -> UserError:
    """The error for the first requested language that is missing, else for the pair."""
    for wanted in (source, target):
        if wanted is not None and not any(related(wanted, code) for code in languages):
            return not_in_file(wanted, name, languages)
    return not_in_file(f"{source} → {target}", name, languages)


def is_header(unit: "etree._Element") -> bool:
    """Whether the unit is the header of a PO catalogue that became XLIFF."""
    return unit.get("restype") == "x-gettext-domain-header"


def is_translatable(unit: "etree._Element") -> bool:
    """The value of the nearest ``translate`` attribute, of the unit or an enclosing group."""
    for element in (unit, *unit.iterancestors()):
        said = element.get("translate")
        if said is not None:
            return said.casefold() != "no"
    return True


def is_filled(target: "etree._Element") -> bool:
    """Whether a target, or a segment in it, has words or codes besides empty ``mrk``."""
    has_codes = any(str(one.tag).rpartition("}")[2] != "mrk" for one in target.iterdescendants("*"))
    return has_codes or bool("".join(target.itertext()).strip())


def empty_segments(unit: "etree._Element") -> list[tuple["etree._Element", "etree._Element"]]:
    """The segments (``mrk``) in ``seg-source`` that are empty in the target, and those there."""
    own, there = (
        {
            one.get("mid"): one
            for one in unit.iterfind(f"{{*}}{name}//{{*}}mrk")
            if one.get("mtype") == "seg" and one.get("mid")
        }
        for name in ("seg-source", "target")
    )
    pairs = [(one, there[mid]) for mid, one in own.items() if mid in there]
    return [(one, target) for one, target in pairs if is_filled(one) and not is_filled(target)]


def _pair(unit: "etree._Element", left_out: Counter[str]) -> Pair | None:
    source = next(unit.iterchildren("{*}source"), None)
    target = next(unit.iterchildren("{*}target"), None)
    if source is None:
        left_out["units without a source"] += 1
        return None
    if is_header(unit):
        return None
    if not is_translatable(unit):
        left_out["not to be translated"] += 1
        return None
    state = "" if target is None else target.get("state", "")
    if target is None or not is_filled(target) or empty_segments(unit) or state in NOT_YET:
        left_out["untranslated"] += 1
        return None
    if state == REVIEW_STATE:
        left_out["marked for review"] += 1
        return None
    return Pair(read_segment(source).text, read_segment(target).text)
