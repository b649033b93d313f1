"""Splits long lines: at sentence ends, else at punctuation, else at spaces, else anywhere."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

# Match white space only from its beginning, because a long run would take quadratic time.
# A text is cut before the white space of a match; the white space is kept between the parts.
_SENTENCE_ENDS = re.compile(r"[.!?…؟।]['\"”’»)\]]*\s+|[。！？｡]+[」』”’）]*\s*|(?<!\s)\s*\n\s*")
_PUNCTUATION = re.compile(r"[,;:)\]}»”–—]\s+|[、，；：]\s*")
_SPACES = re.compile(r"\s+")
# A line without the white space around it.
_LINES = re.compile(r"[^\s](?:[^\r\n]*[^\s])?")
_LEVELS = (_SENTENCE_ENDS, _PUNCTUATION, _SPACES)
_JOINERS = "\u200d\ufe0e\ufe0f"
# Maximum number of characters of a token; it limits the search for a cut.
_CHARACTERS_A_TOKEN = 32

Count = Callable[[Sequence[str]], list[int]]
"""How many tokens each of several texts has."""


class Part(NamedTuple):
    """A part of a line."""

    before: str
    """The white space between it and the part before."""
    text: str


def split_lines(text: str) -> tuple[list[Part], str]:
    """The lines of a text without the white space around them, and the white space at the end.

    The parts and their white space, concatenated, are the text itself.

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
    """Split ``text`` into the smallest number of parts with at most ``limit`` tokens each.

    The parts and the white space before them, concatenated, are the text itself.

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
        # White space between two pieces may cost one token per byte.
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
    """Split the text at every match; a piece of white space only is put before the next one."""
    pieces: list[Part] = []
    before, start, end = whole.before, 0, len(whole.text.rstrip())
    for found in pattern.finditer(whole.text):
        cut = found.start() + len(found[0].rstrip())
        if cut == start or found.end() >= end:
            continue
        pieces.append(Part(before, whole.text[start:cut]))
        before, start = whole.text[cut : found.end()], found.end()
    return [*pieces, Part(before, whole.text[start:])]


def _cut_anywhere(whole: Part, count: Count, limit: int) -> list[Part]:
    """Parts of maximum length; a combining character stays with its base."""
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
        while 1 < cut < len(rest) and _is_combining(rest[cut]):
            cut -= 1
        cut = fits if cut == 1 else cut
        parts.append(Part(before, rest[:cut]))
        before, rest = "", rest[cut:]
    return parts


def _is_combining(character: str) -> bool:
    return bool(unicodedata.combining(character)) or character in _JOINERS
