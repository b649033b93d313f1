"""XLIFF 2.0 to 2.2: segments of units, with the languages in the root."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.data.readers.languages import takes
from heedful.data.readers.markup import read_segment

if TYPE_CHECKING:
    from lxml import etree

REVIEW = "heedful:needs-review"
"""The ``subState`` of a segment whose translation is to be reviewed."""


def is_version_2(root: "etree._Element") -> bool:
    """Whether a document's root says that it is XLIFF 2."""
    return root.get("version", "").startswith("2.")


def languages_of(root: "etree._Element", name: str) -> tuple[str, str]:
    """The source and target language of a document; the target language may be empty.

    Raises:
        UserError: there is no source language.
    """
    codes = root.get("srcLang", "").strip(), root.get("trgLang", "").strip()
    if not codes[0]:
        raise UserError(f"{name}: XLIFF 2 without srcLang, the language of its sources")
    return codes


def read_segments(
    segments: Iterator["etree._Element"],
    codes: tuple[str, str],
    languages: tuple[str | None, str | None],
    left_out: Counter[str],
) -> Iterator[Pair] | None:
    """The pairs of translated segments; None if the document is in other languages.

    The sides of a document of the other direction are exchanged.

    Args:
        segments: complete elements, each with its unit.
        codes: of `languages_of`.
        languages: the wanted source and target language.
        left_out: counts skipped segments by reason.
    """
    if _fit(languages, codes):
        return (pair for one in segments if (pair := _pair(one, left_out)) is not None)
    if codes[1] and _fit(languages, codes[::-1]):
        return (
            Pair(pair.target, pair.source)
            for one in segments
            if (pair := _pair(one, left_out)) is not None
        )
    return None


def is_done(segment: "etree._Element") -> bool:
    """Whether a segment with a translation needs no work. One without a state is done."""
    return segment.get("state") != "initial"


def is_translatable(segment: "etree._Element") -> bool:
    """The value of the nearest ``translate`` attribute of the unit or what encloses it."""
    for element in segment.iterancestors():
        said = element.get("translate")
        if said is not None:
            return said != "no"
    return True


def _fit(languages: tuple[str | None, str | None], codes: tuple[str, str]) -> bool:
    return all(
        wanted is None or not code or takes(wanted, code)
        for wanted, code in zip(languages, codes, strict=True)
    )


def _pair(segment: "etree._Element", left_out: Counter[str]) -> Pair | None:
    source = next(segment.iterchildren("{*}source"), None)
    target = next(segment.iterchildren("{*}target"), None)
    if source is None:
        left_out["segments without a source"] += 1
        return None
    if not is_translatable(segment):
        left_out["not to be translated"] += 1
        return None
    text = "" if target is None else read_segment(target).text
    if not text.strip():
        left_out["untranslated"] += 1
        return None
    if not is_done(segment):
        reason = "marked for review" if segment.get("subState") == REVIEW else "untranslated"
        left_out[reason] += 1
        return None
    return Pair(read_segment(source).text, text)
