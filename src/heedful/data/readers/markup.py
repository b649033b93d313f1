"""Segments of XLIFF and TMX as text: inline codes stay as raw markup, the words are plain text.

Characters are unescaped (``&amp;`` in the file is ``&`` in the text). Start and end tags of
elements that enclose words (``g``, ``mrk``, ``hi``, ``sub``) become tags without namespace
declarations. Every other inline element (``ph``, ``bpt``, ``x``, …) contains code and is kept
whole, escaped as in the file; so is a ``mrk``, and everything from an ``sm`` to its ``em`` in the
same element, whose words are not to be translated. These strings are the *codes* of a segment. When
a translation is inserted, exactly these strings become markup again, and everything else is text.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lxml import etree

ENCLOSING = frozenset({"g", "mrk", "hi", "sub", "pc"})
XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
ATTRIBUTE_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", '"': "&quot;", "\n": "&#10;", "\t": "&#9;", "\r": "&#13;"}
)
# Everything that XML 1.0 cannot hold, even as a character reference.
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Segment(NamedTuple):
    """The text of a segment and its inline codes, in order."""

    text: str
    codes: tuple[str, ...]


def read_segment(
    element: "etree._Element",
    enclosing: Collection[str] | None = ENCLOSING,
    kept: Collection[str] = (),
) -> Segment:
    """The text of ``source``, ``target``, ``seg`` or another element.

    Args:
        element: the element.
        enclosing: local names of elements whose words are part of the text; None for all elements.
        kept: names of elements, with their namespace, whose words are not to be translated.
    """
    parts: list[str] = []
    codes: list[str] = []
    _collect(element, parts, codes, enclosing, kept)
    return Segment("".join(parts), tuple(codes))


def write_segment(translation: str, codes: Sequence[str]) -> tuple[str, bool]:
    """Convert a translation to XML; also returns whether it has the codes of the source.

    If each code occurs as often as in the source and all are nested, codes become markup. Otherwise
    the whole translation is escaped as text, so that nothing is lost.

    Example:
        >>> write_segment("<x/> & Co.", ["<x/>"])
        ('<x/> &amp; Co.', True)
        >>> write_segment("a <b> & Co.", [])
        ('a &lt;b&gt; &amp; Co.', True)
    """
    if codes:
        pieces = split_codes(translation, codes)
        found = pieces[1::2]
        if Counter(found) == Counter(codes) and _nests(found):
            escaped = (
                piece if place % 2 else piece.translate(ESCAPES)
                for place, piece in enumerate(pieces)
            )
            return "".join(escaped), True
    return translation.translate(ESCAPES), not codes


def split_codes(text: str, codes: Sequence[str]) -> list[str]:
    """Split a text into words and codes in turn, which begin and end with words."""
    if not codes:
        return [text]
    longest_first = sorted(set(codes), key=len, reverse=True)
    return re.split(f"({'|'.join(map(re.escape, longest_first))})", text)


def _collect(
    element: "etree._Element",
    parts: list[str],
    codes: list[str],
    enclosing: Collection[str] | None,
    kept: Collection[str],
) -> None:
    parts.append(element.text or "")
    children = iter(element)
    for child in children:
        end = _end_of_kept(child)
        if end is not None:
            whole = _whole(child)
            while child is not end:
                whole += (child.tail or "").translate(ESCAPES)
                child = next(children)
                whole += _whole(child)
            parts += whole, end.tail or ""
            codes.append(whole)
            continue
        has_content = len(child) > 0 or bool(child.text)
        is_kept = child.tag in kept or _is_kept(child)
        encloses = enclosing is None or _local(child) in enclosing
        if encloses and has_content and not is_kept:
            opening, closing = _tags(child)
            parts.append(opening)
            codes.append(opening)
            _collect(child, parts, codes, enclosing, kept)
            parts.append(closing)
            codes.append(closing)
        else:
            whole = _whole(child)
            parts.append(whole)
            codes.append(whole)
        parts.append(child.tail or "")


def _is_kept(element: "etree._Element") -> bool:
    """Whether an annotation says that its words are not to be translated: in XLIFF 2, in 1.2."""
    says = element.get("translate") == "no" or element.get("mtype") == "protected"
    return says and _local(element) == "mrk"


def _end_of_kept(element: "etree._Element") -> "etree._Element | None":
    """The ``em`` of an ``sm`` (XLIFF 2) that says that the words between are not to be translated.

    None for other elements, and if the ``em`` is in another element.
    """
    if element.get("translate") != "no" or _local(element) != "sm":
        return None
    ends = element.itersiblings("{*}em")
    return next((one for one in ends if one.get("startRef") == element.get("id")), None)


def _whole(element: "etree._Element") -> str:
    opening, closing = _tags(element)
    if not len(element) and not element.text:
        return f"{opening[:-1]}/>"
    inside = [(element.text or "").translate(ESCAPES)]
    for child in element:
        inside.append(_whole(child))
        inside.append((child.tail or "").translate(ESCAPES))
    return f"{opening}{''.join(inside)}{closing}"


def _tags(element: "etree._Element") -> tuple[str, str]:
    name = f"{element.prefix}:{_local(element)}" if element.prefix else _local(element)
    attributes = "".join(
        f' {_attribute_name(element, str(key))}="{str(value).translate(ATTRIBUTE_ESCAPES)}"'
        for key, value in element.attrib.items()
    )
    return f"<{name}{attributes}>", f"</{name}>"


def _attribute_name(element: "etree._Element", key: str) -> str:
    if not key.startswith("{"):
        return key
    namespace, local = key[1:].split("}", 1)
    if namespace == XML_NAMESPACE:
        return f"xml:{local}"
    prefixes = (prefix for prefix, uri in element.nsmap.items() if uri == namespace and prefix)
    return f"{next(prefixes)}:{local}"


def _local(element: "etree._Element") -> str:
    return str(element.tag).rsplit("}", 1)[-1]


def _nests(codes: Sequence[str]) -> bool:
    open_names: list[str] = []
    for code in codes:
        name = re.split(r"[\s>/]", code.lstrip("</"), maxsplit=1)[0]
        if code.startswith("</"):
            if not open_names or open_names.pop() != name:
                return False
        elif not code.endswith("/>") and not code.endswith(f"</{name}>"):
            open_names.append(name)
    return not open_names
