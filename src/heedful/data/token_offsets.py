"""Where the tokens of a text are in its characters, for vocabularies of every kind.

Tokens are found word by word (at white space), and within a word by what they decode to.
"""

import unicodedata
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from heedful.basics.symbols import UNKNOWN
from heedful.data.filters import is_unspaced
from heedful.data.vocabularies import encode_words
from heedful.data.vocabulary import Vocabulary

_BROKEN = "\N{REPLACEMENT CHARACTER}"
_MOST_TOKENS_OF_A_CHARACTER = 8
_KEPT_CHARACTERS = 1 << 17
"""Total of the texts whose tokens are kept; they take up to 500 bytes a character."""
Range = tuple[int, int]
"""Start and end in characters."""


class LocatedTokens(NamedTuple):
    """The tokens of a text with their places."""

    tokens: list[int]
    """Without BEGIN and END."""
    ranges: list[Range]
    """The characters of each token; empty for a token of white space only. Tokens that share a
    character have the same range; so have the tokens of a word that they do not spell."""


class _Piece(NamedTuple):
    """Tokens that decode together to a text."""

    size: int
    """Number of tokens."""
    text: str | None
    """None for an unknown token."""


class TokenLocator:
    """Encodes texts with the places of their tokens.

    Args:
        vocabulary: of any kind.

    Example:
        >>> from heedful.data.listed_vocabularies import ListedSettings, Words
        >>> words = Words(["on", "6", "june"], ListedSettings(lower_case=True))
        >>> TokenLocator(words)("On  6 June, 1944")
        LocatedTokens(tokens=[4, 5, 6, 1, 1], ranges=[(0, 2), (4, 5), (6, 10), (10, 11), (12, 16)])
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._texts: dict[int, str] = {}
        self._located: OrderedDict[str, LocatedTokens] = OrderedDict()

    def __call__(self, text: str) -> LocatedTokens:
        """The tokens of a text, without BEGIN and END, and their ranges."""
        found = self._located.pop(text, None) or self._locate(text)
        self._located[text] = found
        while len(self._located) > 1 and sum(map(len, list(self._located))) > _KEPT_CHARACTERS:
            self._located.popitem(last=False)
        return found

    def _locate(self, text: str) -> LocatedTokens:
        words = _words(text)
        tokens, firsts = encode_words(self.vocabulary, [text[a:b] for a, b in words])
        ends = [*firsts, len(tokens)]
        ranges: list[Range] = [(0, 0)] * ends[0]
        for (start, end), a, b in zip(words, firsts, ends[1:], strict=True):
            found = self._inside(text[start:end], tokens[a:b])
            ranges += [(start + one, start + other) for one, other in found]
        return LocatedTokens(tokens, ranges)

    def _inside(self, word: str, tokens: Sequence[int]) -> list[Range]:
        """The ranges of the tokens of one word, from its start."""
        folded = _folded(word)
        pieces = self._pieces(tokens)
        whole = [(0, len(word))] * len(tokens)
        if len(folded) != len(word):
            return whole
        ranges: list[Range] = []
        place = unknown = 0
        for piece in [*pieces, _Piece(0, "")]:
            if piece.text is None:
                unknown += piece.size
                continue
            last = piece.size == 0
            if not piece.text and not last:  # white space, or a part of the word before it
                if not unknown:
                    ranges += [(place, place)] * piece.size
                else:
                    unknown += piece.size
                continue
            at = len(word) if last else folded.find(piece.text, place + bool(unknown))
            if at < 0 or (not unknown and at != place):
                return whole
            if unknown:
                ranges += _shared(place, at, unknown)
                unknown = 0
            place = at + len(piece.text)
            ranges += [(at, place)] * piece.size
        return ranges

    def _pieces(self, tokens: Sequence[int]) -> list[_Piece]:
        """Groups of tokens that decode to whole characters."""
        pieces: list[_Piece] = []
        place = 0
        while place < len(tokens):
            count, text = 1, self._text(tokens[place])
            if tokens[place] == UNKNOWN:
                pieces.append(_Piece(1, None))
                place += 1
                continue
            most = min(_MOST_TOKENS_OF_A_CHARACTER, len(tokens) - place)
            while _BROKEN in text and count < most:
                count += 1
                text = self.vocabulary.decode(tokens[place : place + count])
            pieces.append(_Piece(count, _folded(text.strip().removeprefix("##"))))
            place += count
        return pieces

    def _text(self, token: int) -> str:
        if token not in self._texts:
            self._texts[token] = self.vocabulary.decode([token])
        return self._texts[token]


def _words(text: str) -> list[Range]:
    """The ranges of the parts between white space, as ``str.split`` finds them."""
    words, place = [], 0
    for word in text.split():
        start = text.index(word, place)
        place = start + len(word)
        words.append((start, place))
    return words


def _folded(text: str) -> str:
    """Lower case without accents, for comparing; usually as long as ``text``."""
    lower = text.lower()
    return "".join(unicodedata.normalize("NFD", character)[0] for character in lower)


def _shared(start: int, end: int, count: int) -> list[Range]:
    """The ranges of unknown tokens in a row: a character each, or all the same."""
    if end - start == count:
        return [(place, place + 1) for place in range(start, end)]
    return [(start, end)] * count


class WholeWords:
    """Extends places of a text to whole words. In scripts without spaces, they stay as they are.

    Each character is looked at once, however many places are extended.

    Example:
        >>> start, end = WholeWords("a strawberry, ripe")(7, 9)
        >>> "a strawberry, ripe"[start:end]
        'strawberry'
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._known: dict[int, dict[int, int]] = {-1: {}, 1: {}}

    def __call__(self, start: int, end: int) -> Range:
        """Characters ``start`` to ``end``, extended to the whole words at both boundaries."""
        if start >= end:
            return start, end
        return self._boundary(start, -1), self._boundary(end, 1)

    def _boundary(self, place: int, step: int) -> int:
        known, passed = self._known[step], []
        while place not in known and self._is_inside(place):
            passed.append(place)
            place += step
        found = known.get(place, place)
        known.update(dict.fromkeys(passed, found))
        return found

    def _is_inside(self, place: int) -> bool:
        around = self.text[place - 1 : place + 1]
        return 0 < place < len(self.text) and all(map(_is_of_word, around))


def _is_of_word(character: str) -> bool:
    spelt = character.isalnum() or unicodedata.category(character)[0] == "M"
    return spelt and not is_unspaced(character)
