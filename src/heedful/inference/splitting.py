"""Long lines in parts: at sentence ends, else at punctuation, else at spaces, else anywhere."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

# A run of white space is looked at from its beginning only, or a long one would take its square.
# A cut is where a match's white space begins; the white space itself is kept between the parts.
_SENTENCE_ENDS = re.compile(r"[.!?…؟।]['\"”’»)\]]*\s+|[。！？｡]+[」』”’）]*\s*|(?<!\s)\s*\n\s*")
_PUNCTUATION = re.compile(r"[,;:)\]}»”–—]\s+|[、，；：]\s*")
_SPACES = re.compile(r"\s+")
# A line from its first character that is no white space to its last.
_LINES = re.compile(r"[^\s](?:[^\r\n]*[^\s])?")
_LEVELS = (_SENTENCE_ENDS, _PUNCTUATION, _SPACES)
_JOINERS = "\u200d\ufe0e\ufe0f"
# No token of a vocabulary stands for more characters than this; it bounds the search for a cut.
_CHARACTERS_A_TOKEN = 32

Count = Callable[[Sequence[str]], list[int]]
"""How many tokens each of several texts has."""


class Part(NamedTuple):
    """A part of a line."""

    before: str
    """The white space between it and the part before."""
    text: str


def split_lines(text: str) -> tuple[list[Part], str]:
    """The lines of a text without the white space around them, and what stands after the last.

    The parts joined, with what stands before each and after the last, are the text itself.

    Example:
        >>> split_lines("  One\\n\\nTwo \\n")
        ([Part(before='  ', text='One'), Part(before='\\n\\n', text='Two')], ' \\n')
    """
    parts: list[Part] = []
    end = 0
    for found in _LINES.finditer(text):
        parts.append(Part(text[end : found.start()], found[0]))
        end = found.end()
    return parts, text[end:]


def split_text(text: str, count: Count, limit: int) -> list[Part]:
    """Cut ``text`` into as few parts as go, of at most ``limit`` tokens each.

    The parts joined, with what stands before each, are the text itself.

    Example:
        >>> words = lambda texts: [len(text.split()) for text in texts]
        >>> [part.text for part in split_text("One two. Three, four five.", words, 3)]
        ['One two.', 'Three, four five.']
        >>> [part.text for part in split_text("One two. Three, four five.", words, 2)]
        ['One two.', 'Three,', 'four five.']
    """
    return _split(Part("", text), count, limit, 0)


def _split(whole: Part, count: Count, limit: int, level: int) -> list[Part]:
    if count([whole.text])[0] <= limit:
        return [whole]
    if level == len(_LEVELS):
        return _cut_anywhere(whole, count, limit)
    pieces = _pieces(whole, _LEVELS[level])
    parts: list[Part] = []
    room = 0
    for piece, size in zip(pieces, count([piece.text for piece in pieces]), strict=True):
        # White space between two pieces may cost a token a byte.
        size_joined = size + len(piece.before.encode())
        if parts and size_joined <= room:
            last = parts.pop()
            parts.append(Part(last.before, last.text + piece.before + piece.text))
            room -= size_joined
        else:
            parts.append(piece)
            room = limit - size
    return [small for part in parts for small in _split(part, count, limit, level + 1)]


def _pieces(whole: Part, pattern: re.Pattern[str]) -> list[Part]:
    """The text cut at every match; what is nothing but white space goes before the next piece."""
    pieces: list[Part] = []
    before, start = whole.before, 0
    for found in pattern.finditer(whole.text):
        cut = found.start() + len(found[0].rstrip())
        if cut == start or not whole.text[found.end() :].strip():
            continue
        pieces.append(Part(before, whole.text[start:cut]))
        before, start = whole.text[cut : found.end()], found.end()
    return [*pieces, Part(before, whole.text[start:])]


def _cut_anywhere(whole: Part, count: Count, limit: int) -> list[Part]:
    """Parts that are each as long as fits; a combining character stays with its base."""
    parts: list[Part] = []
    before, rest = whole
    while rest:
        fits, too_long = 1, min(len(rest), limit * _CHARACTERS_A_TOKEN) + 1
        # First by doubling: most parts are far shorter than they could be.
        while (longer := max(2 * fits, limit)) < too_long:
            if count([rest[:longer]])[0] > limit:
                too_long = longer
            else:
                fits = longer
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            if count([rest[:middle]])[0] <= limit:
                fits = middle
            else:
                too_long = middle
        cut = fits
        while 1 < cut < len(rest) and _belongs_to_the_last(rest[cut]):
            cut -= 1
        cut = fits if cut == 1 else cut
        parts.append(Part(before, rest[:cut]))
        before, rest = "", rest[cut:]
    return parts


def _belongs_to_the_last(character: str) -> bool:
    return bool(unicodedata.combining(character)) or character in _JOINERS
