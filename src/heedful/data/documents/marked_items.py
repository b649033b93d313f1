"""Builds segments from the words and markup of a text."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from heedful.data.documents.marked import WHITE_SPACE, Code, Marked

RAW = "raw"
"""The note of a segment in which references and escapes are kept as in the file."""
BREAK = "<br>"
"""A hard line break in a segment."""
_SPACE = " \t\r\n\f"


class Item(NamedTuple):
    """Words or markup.

    Attributes:
        kind: ``words``, ``open``, ``close``, ``alone`` (markup without words, such as an image) or
            ``whole`` (markup with words that stay, such as code).
        start: start in the file, in characters.
        end: end in the file.
        name: an ``open`` and a ``close`` with the same name belong together.
        text: as the segment has it; by default as the file has it, on one line.
        written: its form in a changed segment, if it differs from the file.
        raw: words with references and escapes; by default as the file has them, on one line.
    """

    kind: str
    start: int
    end: int
    name: str = ""
    text: str | None = None
    written: str | None = None
    raw: str | None = None


class Mark(NamedTuple):
    """Markup, or an escaped character.

    Attributes:
        kind: ``open``, ``close``, ``alone`` or ``whole`` as those of :class:`Item`; ``character``
            (an escape or a reference), ``soft`` or ``hard`` (a line break).
        start: start in the paragraph, in characters.
        end: end in the paragraph.
        name: an ``open`` and a ``close`` with the same name belong together.
        text: the unescaped character; for the end of a link, its form in a changed text.
    """

    kind: str
    start: int
    end: int
    name: str = ""
    text: str | None = None


Line = tuple[int, str]
"""A line of a text, and where it stands in the file, in characters."""


def items_of(lines: Sequence[Line], marks: Sequence[Mark]) -> list[Item]:
    """The words and the markup of a text of several lines.

    Args:
        lines: without what stands before them in the file.
        marks: the markup of the lines, joined by line feeds, from left to right.
    """
    content = "\n".join(text for _, text in lines)
    offsets = [0, *accumulate(len(line) + 1 for _, line in lines)]

    def place(at: int, is_end: bool = False) -> int:
        """Where a character stands in the file; or where the one before it ends."""
        if is_end and content[at - 1] != "\n":
            return place(at - 1) + 1
        number = min(bisect_right(offsets, at) - 1, len(lines) - 1)
        return lines[number][0] + at - offsets[number]

    items: list[Item] = []
    at = 0
    for mark in [*marks, Mark("alone", len(content), len(content))]:
        if at < mark.start:
            own = content[at : mark.start]
            items.append(Item("words", place(at), place(mark.start, True), text=own))
        at = mark.end
        own, span = content[mark.start : at], (place(mark.start), place(at, True))
        if mark.kind == "soft":
            items.append(Item("words", *span, text=" ", raw=" "))
        elif mark.kind == "character":
            items.append(Item("words", *span, text=mark.text, raw=own))
        elif own:
            kind, shown = ("alone", BREAK) if mark.kind == "hard" else (mark.kind, mark.text)
            shown = shown or " ".join(own.split("\n"))
            items.append(Item(kind, *span, mark.name, shown, mark.text))
    return items


def segment_of(text: str, items: Sequence[Item]) -> Marked | None:
    """The segment of items, without markup and white space around all of it; None for no words.

    Args:
        text: the file's.
        items: one after the other, without anything between them but white space.
    """
    partners = _partners(items)
    first, last = _trimmed(text, items, partners)
    chosen = items[first:last]
    if not any(item.kind == "words" for item in chosen):
        return None
    start, end = chosen[0].start, chosen[-1].end
    if chosen[0].kind == "words":
        own = text[start : chosen[0].end]
        start += len(own) - len(own.lstrip(_SPACE))
    if chosen[-1].kind == "words":
        own = text[chosen[-1].start : end]
        end -= len(own) - len(own.rstrip(_SPACE))
    # Where words look like a code, references and escapes stay, so that the two differ.
    words = "\0".join(_text(text, item) for item in chosen if item.kind == "words")
    codes = {_text(text, item) for item in chosen if item.kind != "words"}
    is_raw = any(code in words for code in codes)
    pieces: list[str | Code] = []
    for place, item in enumerate(chosen):
        if item.kind != "words":
            pieces.append(Code(_text(text, item), item.start, item.end, item.written))
            continue
        raw = WHITE_SPACE.sub(" ", text[item.start : item.end]) if item.raw is None else item.raw
        own = raw if is_raw else _text(text, item)
        own = own.lstrip(_SPACE) if place == 0 else own
        pieces.append(own.rstrip(_SPACE) if place == len(chosen) - 1 else own)
    chains = tuple(
        (opening - first, closing - first)
        for opening, closing in sorted(partners.items())
        if first <= opening < closing < last
    )
    return Marked(start, end, tuple(pieces), chains, RAW if is_raw else "")


def _text(text: str, item: Item) -> str:
    own = text[item.start : item.end] if item.text is None else item.text
    return own if item.text is not None else WHITE_SPACE.sub(" ", own)


def _partners(items: Sequence[Item]) -> dict[int, int]:
    """Place of an opening item → that of its end."""
    partners: dict[int, int] = {}
    opened: list[int] = []
    names: Counter[str] = Counter()
    for place, item in enumerate(items):
        if item.kind == "open":
            opened.append(place)
            names[item.name] += 1
        elif item.kind == "close" and names[item.name]:
            while items[opened[-1]].name != item.name:
                names[items[opened.pop()].name] -= 1
            names[item.name] -= 1
            partners[opened.pop()] = place
    return partners


def _trimmed(text: str, items: Sequence[Item], partners: dict[int, int]) -> tuple[int, int]:
    """The range of items without what stands around the words."""
    paired = {*partners, *partners.values()}

    def is_droppable(place: int) -> bool:
        item = items[place]
        if item.kind == "words":
            return not text[item.start : item.end].strip(_SPACE)
        return item.kind == "alone" or (item.kind != "whole" and place not in paired)

    return trimmed_range(len(items), partners, is_droppable)


def trimmed_range(
    count: int, partners: Mapping[int, int], is_droppable: Callable[[int], bool]
) -> tuple[int, int]:
    """The range of items that is left without pairs around all words, or without words.

    Args:
        count: number of items.
        partners: place of an opening item → place of the closing one.
        is_droppable: whether the item at a place may stand outside of the range.
    """
    first, last = 0, count
    while first < last:
        if is_droppable(first):
            first += 1
        elif is_droppable(last - 1):
            last -= 1
        elif partners.get(first) == last - 1:
            first, last = first + 1, last - 1
        elif partners.get(first) == first + 1:
            first += 2
        elif partners.get(last - 2) == last - 1:
            last -= 2
        else:
            break
    return first, last
