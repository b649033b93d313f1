"""The rules of XLIFF 2 for inline codes: pairs, original data, copies, order, what must stay.

From the specification (XLIFF 2.1, sections 4.2.3, 4.3.1 and 4.7, "Inline Content").
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from heedful.data.readers.xliff2_structure import is_core, local

if TYPE_CHECKING:
    from lxml import etree

Problem = tuple["etree._Element", str]

_CODES = ("ph", "pc", "sc", "ec")
_RIGHTS = ("canCopy", "canDelete", "canOverlap")


def inline(unit: "etree._Element", side: str) -> Iterator["etree._Element"]:
    """The inline elements of a unit's sources or targets, in order."""
    for part in unit.iterchildren("{*}segment", "{*}ignorable"):
        for content in part.iterchildren(f"{{*}}{side}"):
            yield from (one for one in content.iter("*") if one is not content and is_core(one))


def check_codes(unit: "etree._Element") -> Iterator[Problem]:
    """The problems of a unit's inline codes."""
    for side in ("source", "target"):
        content = list(inline(unit, side))
        yield from _pairs(content, "sc", "ec")
        yield from _pairs(content, "sm", "em")
        codes = [one for one in content if local(one) in _CODES]
        yield from _data(
            codes, {data.get("id") for data in unit.iterfind("{*}originalData/{*}data")}
        )
        yield from _copies(codes)
        yield from _order(codes)
    yield from _kept(unit)
    yield from _same_order(unit)


def _pairs(content: list["etree._Element"], opening: str, closing: str) -> Iterator[Problem]:
    """Beginnings and ends that are separate elements."""
    open_codes: dict[str | None, etree._Element] = {}
    for one in content:
        is_isolated = one.get("isolated") == "yes"
        if local(one) == opening and not is_isolated:
            open_codes[one.get("id")] = one
        elif local(one) == closing and is_isolated:
            if one.get("id") is None or one.get("startRef") is not None:
                yield one, "an isolated <ec> needs id instead of startRef"
        elif local(one) == closing:
            if one.get("id") is not None or one.get("dir") is not None:
                yield one, f"<{closing}> has id or dir, but is not isolated"
            start = open_codes.pop(one.get("startRef"), None)
            if start is None:
                yield one, f"<{closing}> without an earlier <{opening}> in its unit"
            elif closing == "ec":
                yield from _rights(start, one)
    for one in open_codes.values():
        yield one, f"<{opening}> without <{closing}> in its unit, but not isolated"


def _rights(start: "etree._Element", end: "etree._Element") -> Iterator[Problem]:
    for right in _RIGHTS:
        default = "no" if right == "canOverlap" and local(start) == "pc" else "yes"
        if start.get(right, default) != end.get(right, default):
            yield end, f"<sc> and <ec> have different {right}"
    wanted = "yes" if start.get("canReorder", "yes") == "yes" else "no"
    if end.get("canReorder", "yes") != wanted:
        yield end, f"<ec> needs canReorder={wanted!r} after its <sc>"


def _data(codes: list["etree._Element"], known: set[str | None]) -> Iterator[Problem]:
    for code in codes:
        for key in ("dataRef", "dataRefStart", "dataRefEnd"):
            if code.get(key) is not None and code.get(key) not in known:
                yield code, f"{key}={code.get(key)!r} is not in the unit's original data"


def _copies(codes: list["etree._Element"]) -> Iterator[Problem]:
    by_id = {code.get("id"): code for code in codes}
    for code in codes:
        wanted = code.get("copyOf")
        if wanted is None:
            continue
        base = by_id.get(wanted)
        if base is None or local(base) != local(code):
            yield code, f"copyOf={wanted!r} is no <{local(code)}> of the unit"
        elif base.get("canCopy") == "no":
            yield code, f"copyOf={wanted!r} is a code that may not be copied"
        if any(key.startswith("dataRef") for key in map(str, code.keys())):
            yield code, "a copy of a code has no original data of its own"


def _is_fixed(code: "etree._Element") -> bool:
    return code.get("canReorder", "yes") != "yes"


def _order(codes: list["etree._Element"]) -> Iterator[Problem]:
    """Codes that may not be reordered begin with ``firstNo`` and stay as they are."""
    for before, code in pairwise([None, *codes]):
        if code is None or not _is_fixed(code):
            continue
        if code.get("canDelete", "yes") != "no" or code.get("canCopy", "yes") != "no":
            yield code, "a code with canReorder needs canDelete='no' and canCopy='no'"
        is_first = before is None or not _is_fixed(before)
        if is_first and code.get("canReorder") == "no" and local(code) != "ec":
            yield code, "canReorder='no' without firstNo before it"


def _kept(unit: "etree._Element") -> Iterator[Problem]:
    """Codes that may not be deleted are in some target if their segment has one."""
    there = {code.get("id") for code in inline(unit, "target")}
    there |= {code.get("startRef") for code in inline(unit, "target")}
    for segment in unit.iterchildren("{*}segment"):
        if segment.find("{*}target") is None:
            continue
        for source in segment.iterchildren("{*}source"):
            for code in source.iter(*(f"{{*}}{name}" for name in _CODES)):
                own = code.get("id") or code.get("startRef")
                if code.get("canDelete") == "no" and own not in there:
                    yield code, f"the target lacks the code {own!r}, which may not be deleted"


def _same_order(unit: "etree._Element") -> Iterator[Problem]:
    """A sequence of codes that may not be reordered is the same in the target."""
    targets = [code for code in inline(unit, "target") if local(code) in _CODES]
    if not targets:
        return
    places = {_key(code): place for place, code in enumerate(targets)}
    codes = [code for code in inline(unit, "source") if local(code) in _CODES]
    for before, code in pairwise(codes):
        is_linked = _is_fixed(before) and code.get("canReorder") == "no"
        first, second = places.get(_key(before)), places.get(_key(code))
        if not is_linked or first is None or second is None:
            continue
        moved = second != first + 1 or _nesting(targets[second]) != _nesting(code)
        if moved:
            yield targets[second], "the target has another order of codes with canReorder='no'"


def _key(code: "etree._Element") -> tuple[str, str | None]:
    return local(code), code.get("id") or code.get("startRef")


def _nesting(code: "etree._Element") -> list[str | None]:
    """The ids of the codes that enclose a code."""
    return [one.get("id") for one in code.iterancestors("{*}pc")]
