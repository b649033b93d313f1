"""The rules of XLIFF 2 that tables of elements and attributes cannot say: ids and references.

From the specification (XLIFF 2.1, section 4, "Core": its constraints and processing requirements).
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from heedful.data.readers.xliff2_codes import check_codes, inline
from heedful.data.readers.xliff2_structure import (
    XML,
    check_structure,
    invalid,
    is_core,
    local,
)

if TYPE_CHECKING:
    from lxml import etree

_TOKEN = r"[\w.\-:·]+"
_MODULE_PREFIXES = "gls|mtc|mda|res|ctr|fs|slr|val|its|itsm|pgs|tbx"
_FRAGMENT = re.compile(
    rf"#/?(?:f={_TOKEN}(?:/|$))?(?:g={_TOKEN}(?:/|$))?(?:u={_TOKEN}(?:/|$))?"
    rf"(?:(?:(?:[dnt]|{_MODULE_PREFIXES})=)?{_TOKEN})?"
)
_NOTE = re.compile(rf"#/?(?:(?:f={_TOKEN}/)?u=(?P<unit>{_TOKEN})/)?n=(?P<note>{_TOKEN})")
_SCOPES = ("file", "group", "unit")


def check_xliff2(root: "etree._Element", name: str) -> None:
    """Check a document.

    Raises:
        UserError: the first element that is invalid, with its line.
    """
    check_structure(root, name)
    for element, problem in _problems(root):
        raise invalid(element, name, problem)


Problem = tuple["etree._Element", str]


def _problems(root: "etree._Element") -> Iterator[Problem]:
    yield from _repeated(root.iterchildren("{*}file"))
    for file in root.iterchildren("{*}file"):
        units = list(file.iter("{*}unit"))
        yield from _repeated(units)
        yield from _repeated(file.iter("{*}group"))
        ids = {unit.get("id") for unit in units}
        for scope in file.iter(*(f"{{*}}{one}" for one in _SCOPES)):
            if is_core(scope):
                yield from _of_scope(scope)
        for unit in units:
            yield from _languages(unit, root)
            yield from problems_of_unit(unit)
            yield from _subflows(unit, ids)


def problems_of_unit(unit: "etree._Element") -> Iterator[Problem]:
    """The problems of a unit's ids, orders, annotations and inline codes."""
    yield from _of_unit(unit)
    yield from check_codes(unit)


def _repeated(elements: Iterator["etree._Element"] | list["etree._Element"]) -> Iterator[Problem]:
    seen: set[str] = set()
    for element in elements:
        own = element.get("id")
        if own in seen:
            yield element, f"<{local(element)}> has the id {own!r} of another one"
        if own is not None:
            seen.add(own)


def _of_scope(scope: "etree._Element") -> Iterator[Problem]:
    """Ids of notes and of extensions, which are unique in a file, a group or a unit."""
    for notes in scope.iterchildren("{*}notes"):
        yield from _repeated(notes.iterchildren("{*}note"))
    seen: set[tuple[str, str]] = set()
    for child in scope.iterchildren("*"):
        if is_core(child) or str(child.tag).startswith("{urn:oasis:names:tc:xliff:"):
            continue
        for element in child.iter("*"):
            own = element.get(f"{XML}id") or element.get("id")
            key = (str(element.tag), own or "")
            if own and key in seen:
                yield element, f"<{local(element)}> has the id {own!r} of another one"
            seen.add(key)


def _languages(unit: "etree._Element", root: "etree._Element") -> Iterator[Problem]:
    wanted = {"source": root.get("srcLang"), "target": root.get("trgLang")}
    for part in unit.iterchildren("{*}segment", "{*}ignorable"):
        spaces = []
        for side in part.iterchildren("{*}source", "{*}target"):
            language = wanted[local(side)]
            if language is None:
                yield side, "<target> in a document without trgLang"
                return
            own = inherited(side, "lang", language)
            if own.casefold() != language.casefold():
                yield side, f"xml:lang={own!r} in <{local(side)}> of a document in {language}"
            if local(side) == "source" or has_content(side):
                spaces.append(inherited(side, "space", "default"))
        if len(set(spaces)) > 1:
            yield part, "<source> and <target> have different xml:space"


def has_content(side: "etree._Element") -> bool:
    """Whether a source or target has codes or words; white space alone is to be replaced."""
    return len(side) > 0 or bool((side.text or "").strip())


def inherited(element: "etree._Element", attribute: str, default: str) -> str:
    """The nearest ``xml:lang`` or ``xml:space`` of an element or what encloses it."""
    for one in (element, *element.iterancestors()):
        own = one.get(f"{XML}{attribute}")
        if own is not None:
            return str(own)
    return default


def _of_unit(unit: "etree._Element") -> Iterator[Problem]:
    parts = list(unit.iterchildren("{*}segment", "{*}ignorable"))
    orders: set[int] = set()
    for position, part in enumerate(parts, start=1):
        for target in part.iterchildren("{*}target"):
            order = int(target.get("order", position))
            if order in orders:
                yield target, f"<target> has the order {order} of another one"
            orders.add(order)
    for original in unit.iterchildren("{*}originalData"):
        yield from _repeated(original.iterchildren("{*}data"))
    for side in ("source", "target"):
        own = [each for each in inline(unit, side) if local(each) != "cp"]
        yield from _repeated([*parts, *own])
    notes = {note.get("id") for note in unit.findall("{*}notes/{*}note")}
    for side in ("source", "target"):
        for mark in inline(unit, side):
            if local(mark) in ("mrk", "sm") and (problem := _of_mark(mark, unit, notes)):
                yield mark, problem


def _of_mark(mark: "etree._Element", unit: "etree._Element", notes: set[str | None]) -> str | None:
    reference, value = mark.get("ref"), mark.get("value")
    if mark.get("type") == "comment":
        if (reference is None) == (value is None):
            return "a comment needs either value or ref"
        if reference is not None:
            found = _NOTE.fullmatch(reference)
            is_own = found is not None and found["unit"] in (None, unit.get("id"))
            if found is None or not is_own or found["note"] not in notes:
                return f"ref={reference!r} is no note of the unit"
        return None
    is_outside = reference is None or not reference.startswith("#")
    is_valid = is_outside or (reference != "#" and bool(_FRAGMENT.fullmatch(str(reference))))
    return None if is_valid else f"ref={reference!r} is no fragment identifier"


def _subflows(unit: "etree._Element", units: set[str | None]) -> Iterator[Problem]:
    for side in ("source", "target"):
        for code in inline(unit, side):
            for key in ("subFlows", "subFlowsStart", "subFlowsEnd"):
                for wanted in code.get(key, "").split():
                    if wanted not in units:
                        yield code, f"{key} names the unit {wanted!r}, which the file does not have"
