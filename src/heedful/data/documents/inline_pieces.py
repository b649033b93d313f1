"""Words with styles, and the markup between them, as segments.

Markup stands in a segment as ``<g1>…</g1>`` (a pair) or ``<x1/>``. Words of the most frequent style
have no markup.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from heedful.data.documents.marked import Code
from heedful.data.documents.marked_items import trimmed_range

if TYPE_CHECKING:
    from lxml import etree


class Words(NamedTuple):
    """Words of a style."""

    text: str
    style: str


class Fragment(NamedTuple):
    """A part of the file, from ``start`` to ``end`` in characters, between two texts."""

    before: str
    start: int
    end: int
    after: str = ""


class Markup(NamedTuple):
    """Markup of a paragraph.

    Attributes:
        kind: ``open`` and ``close`` (a pair if they have the same name), ``alone`` (without words),
            ``whole`` (with words that stay) or ``space`` (white space).
        fragments: how it is written.
        name: the name of a pair.
        fixed: whether it must stay in its order with regard to other markup.
    """

    kind: str
    fragments: tuple[Fragment, ...]
    name: str = ""
    fixed: bool = False


Piece = Words | Markup


@dataclass
class Paragraph:
    """How a paragraph is written.

    Attributes:
        element: the element.
        before: what stands before the segment: markup, and words of white space.
        after: what stands behind it.
        style: the style of words outside of markup.
        markup: text of a code → the markup, or the style of words.
        styles: text of an opening code → the style of the words inside.
    """

    element: "etree._Element"
    before: list[Piece]
    after: list[Piece]
    style: str = ""
    markup: dict[str, Markup | str] = field(default_factory=dict)
    styles: dict[str, str] = field(default_factory=dict)


class Codes:
    """Builds the words and codes of a segment."""

    def __init__(self, paragraph: Paragraph) -> None:
        self._own = paragraph
        self._pieces: list[str | Code] = []
        self._texts: list[tuple[str, str]] = []
        """Words (with an empty first text) and codes, with their kind."""
        # Counted separately, so that another order of pairs and others has the same codes.
        self._pairs = self._singles = 0

    def add(self, pieces: Sequence[Piece]) -> None:
        """Add the words and markup of a segment."""
        partners = pairs(pieces)
        closing = {end: start for start, end in partners.items()}
        bases = base_styles(pieces, partners)
        self._own.style = bases[-1]
        names: dict[int, str] = {}
        levels = [-1]
        for place, piece in enumerate(pieces):
            if isinstance(piece, Words):
                base = bases[levels[-1]]
                style = piece.style if piece.text.strip() else base
                self._add_words(piece.text, None if style == base else style)
            elif place in partners:
                names[place] = self._open(piece, bases[place])
                levels.append(place)
            elif place in closing:
                levels.pop()
                self._close(names[closing[place]], piece)
            else:
                self._add_single(piece)

    def pieces(self, place: int) -> Iterator[str | Code]:
        """The words and codes, without white space at the ends."""
        texts = [text for text, _ in self._texts]
        words = "\0".join(text for text, kind in self._texts if kind == "words")
        # Words that look like a code would be taken for it.
        sign = "" if not re.search(r"</?[gx]\d+/?>", words) else "_"
        for number, (text, kind) in enumerate(self._texts):
            if kind != "words":
                yield Code(self._renamed(text, sign), place, place, "")
                continue
            own = text.lstrip() if number == 0 else text
            yield own.rstrip() if number == len(texts) - 1 else own
        paragraph = self._own
        paragraph.markup = {self._renamed(key, sign): one for key, one in paragraph.markup.items()}
        paragraph.styles = {self._renamed(key, sign): one for key, one in paragraph.styles.items()}

    def chains(self) -> Iterator[tuple[int, int]]:
        """The pairs of codes."""
        opened: list[int] = []
        for place, (_, kind) in enumerate(self._texts):
            if kind == "open":
                opened.append(place)
            elif kind == "close":
                yield opened.pop(), place

    @staticmethod
    def _renamed(text: str, sign: str) -> str:
        return re.sub(r"(?=/?>$)", sign, text, count=1) if sign else text

    def _add_words(self, text: str, style: str | None) -> None:
        last = self._texts[-1] if self._texts else ("", "")
        if style is None:
            if last[1] == "words":
                self._texts[-1] = (last[0] + text, "words")
            elif text:
                self._texts.append((text, "words"))
        else:
            core = text.strip()
            before, after = text[: text.index(core)], text[text.index(core) + len(core) :]
            self._add_words(before, None)
            self._pairs += 1
            codes = f"<g{self._pairs}>", f"</g{self._pairs}>"
            self._own.markup |= dict.fromkeys(codes, style)
            self._own.styles[codes[0]] = style
            self._texts += [(codes[0], "open"), (core, "words"), (codes[1], "close")]
            self._add_words(after, None)

    def _open(self, piece: Markup, style: str) -> str:
        self._pairs += 1
        code = f"<g{self._pairs}>"
        self._own.markup[code] = piece
        self._own.styles[code] = style
        self._texts.append((code, "open"))
        return code

    def _close(self, opening: str, piece: Markup) -> None:
        if self._texts[-1][0] == opening:  # a pair without words
            self._texts.pop()
            self._pairs -= 1
            del self._own.styles[opening]
            first = self._own.markup.pop(opening)
            assert isinstance(first, Markup)
            self._add_single(Markup("alone", first.fragments + piece.fragments))
            return
        code = opening.replace("<", "</")
        self._own.markup[code] = piece
        self._texts.append((code, "close"))

    def _add_single(self, piece: Markup) -> None:
        if piece.kind == "space":
            if not (self._texts and self._texts[-1][0].endswith(" ")):
                self._add_words(" ", None)
            return
        last = self._texts[-1] if self._texts else ("", "")
        if last[1] == "single":
            before = self._own.markup[last[0]]
            assert isinstance(before, Markup)
            self._own.markup[last[0]] = Markup("alone", before.fragments + piece.fragments)
            return
        self._singles += 1
        code = f"<x{self._singles}/>"
        self._own.markup[code] = piece
        self._texts.append((code, "single"))


def pairs(pieces: Sequence[Piece]) -> dict[int, int]:
    """Place of an opening piece → that of its closing piece; pairs nest.

    Pairs without a name always nest in well-formed XML. A named pair that overlaps one of these has
    no partner.
    """
    found: dict[int, int] = {}
    opened: list[tuple[int, str]] = []
    for place, piece in enumerate(pieces):
        if not isinstance(piece, Markup) or piece.kind not in ("open", "close"):
            continue
        if piece.kind == "open":
            opened.append((place, piece.name))
            continue
        above = len(opened)
        while above and opened[above - 1][1] != piece.name and opened[above - 1][1]:
            above -= 1
        if piece.name == "":
            above = len(opened)
            while above and opened[above - 1][1]:
                above -= 1
        if above and opened[above - 1][1] == piece.name:
            found[opened[above - 1][0]] = place
            del opened[above - 1 :]
    return found


def merged(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces with adjacent words of the same style joined; white space has any style."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if isinstance(piece, Words) and isinstance(last, Words):
            if last.style == piece.style or not piece.text.strip():
                found[-1] = Words(last.text + piece.text, last.style)
                continue
            if not last.text.strip():
                found[-1] = Words(last.text + piece.text, piece.style)
                continue
        if isinstance(piece, Markup) or piece.text:
            found.append(piece)
    return found


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces with adjacent words of exactly the same style joined.

    A cell without runs must have all its words in one element.
    """
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if isinstance(piece, Words) and isinstance(last, Words) and piece.style == last.style:
            found[-1] = Words(last.text + piece.text, last.style)
        elif isinstance(piece, Markup) or piece.text:
            found.append(piece)
    return found


def is_movable(pieces: Sequence[Piece]) -> bool:
    """Whether markup may get another order: fixed markup only if it is alone, as one code."""
    paired = {place for pair in pairs(pieces).items() for place in pair}
    markup = [place for place, piece in enumerate(pieces) if isinstance(piece, Markup)]
    fixed = [place for place in markup if place not in paired and _is_fixed(pieces[place])]
    return not fixed or (len(fixed) == len(markup) == fixed[-1] - fixed[0] + 1)


def _is_fixed(piece: Piece) -> bool:
    return isinstance(piece, Markup) and piece.fixed


def trimmed(element: "etree._Element", pieces: Sequence[Piece]) -> tuple[list[Piece], Paragraph]:
    """The pieces of the segment, and the paragraph with what stands around them."""
    partners = pairs(pieces)
    paired = {*partners, *partners.values()}

    def is_droppable(place: int) -> bool:
        piece = pieces[place]
        if isinstance(piece, Words):
            return not piece.text.strip()
        return piece.kind in ("alone", "space") or (piece.kind != "whole" and place not in paired)

    first, last = trimmed_range(len(pieces), partners, is_droppable)
    inner = list(pieces[first:last])
    own = Paragraph(element, list(pieces[:first]), list(pieces[last:]))
    if inner and isinstance(inner[0], Words):
        text = inner[0].text
        own.before.append(Words(text[: len(text) - len(text.lstrip())], inner[0].style))
    if inner and isinstance(inner[-1], Words):
        text = inner[-1].text
        own.after.insert(0, Words(text[len(text.rstrip()) :], inner[-1].style))
    return inner, own


def base_styles(pieces: Sequence[Piece], partners: dict[int, int]) -> dict[int, str]:
    """Place of an opening piece → the most frequent style of the words inside; -1 → outside."""
    closing = set(partners.values())
    levels = [-1]
    counts: dict[int, Counter[str]] = {-1: Counter()}
    outer: dict[int, int] = {}
    for place, piece in enumerate(pieces):
        if isinstance(piece, Words):
            counts[levels[-1]][piece.style] += len(piece.text.strip())
        elif place in partners:
            outer[place] = levels[-1]
            levels.append(place)
            counts[place] = Counter()
        elif place in closing:
            levels.pop()
    found: dict[int, str] = {}
    every = next((one.style for one in pieces if isinstance(one, Words)), "")
    for level, own in counts.items():
        inherited = found[outer[level]] if level >= 0 else every
        found[level] = max(own, key=lambda style: own[style]) if own else inherited
    return found
