"""Texts with markup: the base class of HTML, Markdown and reStructuredText.

A segment consists of words and *codes*, which are markup that its translation must contain.
"""

import re
from abc import abstractmethod
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from heedful.data.documents.base import without_forbidden
from heedful.data.documents.text_spans import TextSpanDocument

_BREAKS = re.compile(r"[\r\n]+[ \t\r\n]*")
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
WHITE_SPACE = re.compile(r"[ \t\r\n\f]+")


class Code(NamedTuple):
    """Markup in a segment.

    Attributes:
        text: its text in the segment, on one line.
        start: start in the file, in characters.
        end: end in the file.
        written: its form in a changed segment, if it differs from the file.
    """

    text: str
    start: int
    end: int
    written: str | None = None


class Marked(NamedTuple):
    """A segment with markup.

    Attributes:
        start: start in the file, in characters.
        end: end in the file.
        pieces: its words and codes.
        chains: pairs of opening and closing codes, as indices of pieces. Other codes are single.
        note: information for the format when it writes the segment.
    """

    start: int
    end: int
    pieces: tuple[str | Code, ...]
    chains: tuple[tuple[int, int], ...] = ()
    note: str = ""

    @property
    def text(self) -> str:
        """The segment."""
        return "".join(piece.text if isinstance(piece, Code) else piece for piece in self.pieces)

    def has_words(self) -> bool:
        """Whether there is a letter outside of codes."""
        words = (piece for piece in self.pieces if isinstance(piece, str))
        return any(character.isalpha() for piece in words for character in piece)


class MarkedDocument(TextSpanDocument):
    """A file whose segments have markup; a segment may be inside a code of another segment.

    A segment with an identical translation keeps its bytes. A translation that lacks codes or has
    other codes is refused: the source stays, and a notice counts it.
    """

    @abstractmethod
    def marked(self) -> Iterable[Marked]:
        """The segments of ``self.text``, in any order."""

    @abstractmethod
    def composed(self, one: Marked, parts: Sequence[str | Code]) -> str | None:
        """The form of a translation in the file; None if it is impossible.

        Args:
            one: the segment.
            parts: words and codes of the translation, with the codes of the segment.
        """

    def code(self, code: Code) -> str:
        """The text of a code, with the translations inside it."""
        if code.written is not None:
            return code.written
        return self._rendered(code.start, code.end, bisect_left(self._starts, code.start + 1))

    def find(self) -> None:
        found = [one for one in self.marked() if one.has_words()]
        self._marked = sorted(found, key=lambda one: (one.start, -one.end))
        self._starts = [one.start for one in self._marked]
        self._translations: Sequence[str] = self.segments
        self._unmatched = 0
        for one in self._marked:
            text = one.text
            self.add(one.start, one.end, text)
            if len(one.pieces) > 1 and text not in self.spans:
                self.spans[text] = _spans(one)

    def accepts(self, place: int, translation: str) -> bool:
        one = self._marked[place]
        return translation == one.text or self._composed(one, translation) is not None

    def escaped(self, place: int, translation: str) -> str:
        one = self._marked[place]
        own = None if translation == one.text else self._composed(one, translation)
        if own is None:
            self._unmatched += translation != one.text
            return self._rendered(one.start, one.end, place + 1)
        return own

    def _composed(self, one: Marked, translation: str) -> str | None:
        parts = _parts(one, translation.strip())
        return None if parts is None else self.composed(one, parts)

    def _with(self, translations: Sequence[str]) -> bytes:
        self._translations = translations
        self._unmatched = 0
        data = self._encoded(self._rendered(0, len(self.text), 0))
        if self._unmatched:
            self.report(
                self._unmatched,
                "translations have other markup than their source; these texts were left "
                "untranslated",
            )
        return data

    def _rendered(self, start: int, end: int, place: int) -> str:
        """A part of the file, with the translations inside it."""
        parts: list[str] = []
        at = start
        while place < len(self._marked) and self._starts[place] < end:
            one = self._marked[place]
            if not self._translations[place].strip():
                place += 1
                continue
            parts += [self.text[at : one.start], self.escaped(place, self._translations[place])]
            at = one.end
            place = bisect_left(self._starts, at, place + 1)
        return "".join([*parts, self.text[at:end]])


def _parts(one: Marked, translation: str) -> list[str | Code] | None:
    """The words and codes of a translation.

    None if its codes are not those of the segment, or if it has nothing but control characters.
    """
    codes: dict[str, deque[Code]] = defaultdict(deque)
    for piece in one.pieces:
        if isinstance(piece, Code):
            codes[piece.text].append(piece)
    pieces, own = _split(translation, codes), _split(one.text, codes)[1::2]
    if Counter(pieces[1::2]) != Counter(own):
        return None
    # What looks like a code and is none may keep the source itself from nesting.
    if _nests(own, one) and not _nests(pieces[1::2], one):
        return None
    parts: list[str | Code] = []
    for number, piece in enumerate(pieces):
        is_code = number % 2 and codes[piece]
        parts.append(codes[piece].popleft() if is_code else without_forbidden(piece)[0])
    return _without_empty_pairs([part for part in parts if part], one) or None


def one_line(words: str) -> str:
    """Words without line breaks and without control characters, which no text format has."""
    return _BREAKS.sub(" ", without_forbidden(words)[0])


def roles(one: Marked) -> dict[str | Code, str]:
    """``open``, ``close`` or ``whole`` for each code of a segment."""
    found: dict[str | Code, str] = dict.fromkeys(one.pieces, "whole")
    for opening, closing in one.chains:
        found[one.pieces[opening]], found[one.pieces[closing]] = "open", "close"
    return found


def _without_empty_pairs(parts: list[str | Code], one: Marked) -> list[str | Code]:
    """A translation in which pairs have words, as they do in the segment.

    Where an alignment has no word for a pair, it goes around the next one, or the one before.
    """
    empty = {one.pieces[opening] for opening, closing in one.chains if closing == opening + 1}
    role = roles(one)
    found = list(parts)
    place = 0
    while place + 1 < len(found):
        opening, closing = found[place : place + 2]
        kinds = [role.get(part) for part in (opening, closing) if isinstance(part, Code)]
        if kinds == ["open", "close"] and opening not in empty:
            after = found[place + 2] if place + 2 < len(found) else None
            before = found[place - 1] if place else None
            if isinstance(after, str) and (word := _WORD.search(after)):
                first, last = word.span()
                found[place : place + 3] = [after[:first], opening, word[0], closing, after[last:]]
                place += 3
            elif isinstance(before, str) and (words := _WORD.findall(before)):
                first = before.rindex(words[-1])
                last = first + len(words[-1])
                inner: list[str | Code] = [before[:first], opening, words[-1], closing]
                found[place - 1 : place + 2] = [*inner, before[last:]]
                place += 3
        place += 1
    if found and isinstance(found[-1], str):
        found[-1] = found[-1].rstrip()
    return [part for part in found if part]


def _split(text: str, codes: Mapping[str, object]) -> list[str]:
    """Words and codes in turn; of codes that begin alike, the longest."""
    if not codes:
        return [text]
    # Thousands of codes as alternatives of one expression would take quadratic time.
    lengths = sorted({len(code) for code in codes}, reverse=True)
    first = re.compile("|".join(map(re.escape, {code[0] for code in codes})))
    pieces: list[str] = []
    at = place = 0
    while found := first.search(text, place):
        place = found.start()
        code = next((own for n in lengths if (own := text[place : place + n]) in codes), "")
        if code:
            pieces += [text[at:place], code]
            at = place + len(code)
        place = at if code else place + 1
    return [*pieces, text[at:]]


def _nests(found: Iterable[str], one: Marked) -> bool:
    """Whether codes open and close in the right order."""
    ends: dict[str, set[str]] = defaultdict(set)
    for opening, closing in one.chains:
        ends[_text(one.pieces[opening])].add(_text(one.pieces[closing]))
    closings = {text for texts in ends.values() for text in texts}
    opened: list[set[str]] = []
    for text in found:
        if opened and text in opened[-1]:
            opened.pop()
        elif text in ends:
            opened.append(ends[text])
        elif text in closings:
            return False
    return not opened


def _spans(one: Marked) -> list[list[tuple[int, int]]]:
    """The codes of a segment as known spans: chains of their places in its text."""
    places: list[tuple[int, int]] = []
    at = 0
    for piece in one.pieces:
        length = len(_text(piece))
        places.append((at, at + length))
        at += length
    partners = dict(one.chains)
    closing = set(partners.values())
    chains = []
    for number, piece in enumerate(one.pieces):
        if isinstance(piece, Code) and number not in closing:
            partner = [places[partners[number]]] if number in partners else []
            chains.append([places[number], *partner])
    return chains


def _text(piece: str | Code) -> str:
    return piece.text if isinstance(piece, Code) else piece
