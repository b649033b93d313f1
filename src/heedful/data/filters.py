"""Filters for training data: pairs that fail a filter are skipped and counted.

Filters do not apply to validation data, test data or texts to translate.
"""

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pydantic import Field

from heedful.basics.settings import Settings
from heedful.data.examples import Pair
from heedful.data.links import LinkedPair

P = TypeVar("P", Pair, LinkedPair)

# Characters of scripts that put no spaces between words, with how many make about one word: Han,
# kana and bopomofo two; Thai, Lao, Burmese, Khmer and their neighbours four.
TWO_A_WORD = re.compile(
    r"[\u2e80-\u2fdf\u3005-\u30ff\u3100-\u312f\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
FOUR_A_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf]")


def is_unspaced(character: str) -> bool:
    """Whether a character is of a script that puts no spaces between words.

    Example:
        >>> [is_unspaced(one) for one in "漢กa"]
        [True, True, False]
    """
    return bool(TWO_A_WORD.match(character) or FOUR_A_WORD.match(character))


# A ratio means little for very short texts ("Ja." for "Yes, it is."): they count as so many words.
FEWEST_WORDS = 3
FULL = 0.6


class FilterSettings(Settings):
    """Settings for which pairs are kept for training; ``None`` disables a limit."""

    empty: bool = Field(default=True, description="leave out pairs with an empty side")
    max_words: int | None = Field(default=200, ge=1, description="most words on either side")
    max_characters: int | None = Field(
        default=2000, ge=1, description="most characters on either side"
    )
    max_ratio: float | None = Field(
        default=4.0, ge=1, description="most words of the longer side for one of the shorter"
    )
    duplicates: bool = Field(default=True, description="leave out all but the first of equal pairs")


NO_FILTERS = FilterSettings(
    empty=False, max_words=None, max_characters=None, max_ratio=None, duplicates=False
)


def filter_pairs(
    pairs: Iterable[P], settings: FilterSettings, left_out: Counter[str]
) -> Iterator[P]:
    """The pairs that pass every filter; for others, the first failed filter is counted.

    Duplicates are found by a hash of 8 bytes, in a table of at most about 27 bytes per pair. Among
    five million pairs, the probability that a collision removes any pair is one in a million. Links
    are ignored when pairs are compared.
    """
    seen = HashSet()
    for pair in pairs:
        reason = failed_filter(pair, settings)
        if reason is None and settings.duplicates and not seen.add(hash_pair(pair)):
            reason = "duplicate"
        if reason is None:
            yield pair
        else:
            left_out[reason] += 1


def failed_filter(pair: Pair | LinkedPair, settings: FilterSettings) -> str | None:
    """A description of the first filter that a pair fails, or None; duplicates are not checked."""
    if settings.empty and not (pair.source.strip() and pair.target.strip()):
        return "empty"
    longest = max(len(pair.source), len(pair.target))
    if settings.max_characters is not None and longest > settings.max_characters:
        return f"longer than {settings.max_characters} characters"
    if settings.max_words is None and settings.max_ratio is None:
        return None
    fewer, more = sorted((count_words(pair.source), count_words(pair.target)))
    if settings.max_words is not None and more > settings.max_words:
        return f"longer than {settings.max_words} words"
    if settings.max_ratio is not None and more > settings.max_ratio * max(fewer, FEWEST_WORDS):
        return f"length ratio above {settings.max_ratio:g}"
    return None


def count_words(text: str) -> float:
    """The number of words of a text: runs without white space; characters of scripts without spaces
    count as a share of a word.

    Example:
        >>> count_words("two words"), count_words("我们在家"), count_words("在 home")
        (2, 2.0, 1.5)
    """
    if text.isascii():
        return len(text.split())
    rest, twos = TWO_A_WORD.subn(" ", text)
    rest, fours = FOUR_A_WORD.subn(" ", rest)
    return len(rest.split()) + twos / 2 + fours / 4 if twos or fours else len(rest.split())


def hash_pair(pair: Pair | LinkedPair) -> int:
    """A hash of a pair, 8 bytes."""
    texts = (pair.source, pair.target)
    # No text holds a 0xFF byte in UTF-8, so no two pairs are joined to the same bytes.
    return hash_bytes(b"\xff".join(text.encode("utf-8", "surrogatepass") for text in texts))


def hash_bytes(data: bytes) -> int:
    """8 bytes of BLAKE2b as a number; independent of the platform."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class HashSet:
    """A set of 64-bit hashes in one flat table (open addressing), a sixth of a `set` in memory."""

    def __init__(self) -> None:
        self._table = array("Q", bytes(8 << 10))
        self._count = 0

    def add(self, value: int) -> bool:
        """Add a hash; returns whether it is new."""
        value = value or 1  # zero marks a free place
        if not self._place(value):
            return False
        self._count += 1
        if self._count > FULL * len(self._table):
            old, self._table = self._table, array("Q", bytes(16 * len(self._table)))
            for kept in old:
                if kept:
                    self._place(kept)
        return True

    def __len__(self) -> int:
        return self._count

    def _place(self, value: int) -> bool:
        table = self._table
        mask = len(table) - 1
        place = value & mask
        while table[place]:
            if table[place] == value:
                return False
            place = (place + 1) & mask
        table[place] = value
        return True
