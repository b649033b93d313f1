"""The overlap of held-out data with training data: equal sources, and near-duplicates."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Literal

_NUMBER = re.compile("0+")


def count_overlap(train: Iterable[str], held_out: Iterable[str]) -> int:
    """The number of held-out sources that also occur in training data; empty sources do not count.

    White space around sources is ignored. Held-out sources are in memory; training data is
    streamed.

    Example:
        >>> count_overlap(["a ", "b", "b"], ["b", " b", "c", ""])
        2
    """
    overlap = Overlap(held_out)
    for text in train:
        if not overlap.wanted:
            break
        overlap.see(text)
    return overlap.found


class Overlap:
    """Counts the held-out sources that occur in training data, as training sources are seen.

    Attributes:
        total: number of held-out sources.
        found: how many of them were seen.
        wanted: those that were not seen yet, with their numbers.
    """

    def __init__(self, held_out: Iterable[str]) -> None:
        self.wanted: Counter[str] = Counter()
        self.total = self.found = 0
        for text in held_out:
            self.total += 1
            self.wanted[text.strip()] += 1
        del self.wanted[""]

    def see(self, source: str) -> None:
        """See a training source."""
        self.found += self.wanted.pop(source.strip(), 0)


class _Letters(dict[int, str]):
    """A table for `str.translate`: letters in lower case, digits as 0, all else removed."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)
        kept = "0" if kind == "Nd" else character.casefold() if kind[0] in "LMN" else ""
        self[code] = kept
        return kept


_LETTERS = _Letters()


def near_key(text: str) -> str:
    """What near-duplicates have in common: their letters, without case, and the places of numbers.

    White space, punctuation and symbols are ignored, and any number equals any other. A text
    without letters is only equal to itself, but for white space around it.

    Example:
        >>> near_key("Open 12 files…"), near_key("&Open 1,024 files"), near_key(" 12:30 ")
        ('open0files', 'open0files', '12:30')
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    key = _NUMBER.sub("0", text.translate(_LETTERS))
    return key if key not in ("", "0") else text.strip()


class NearDuplicates:
    """Finds near-duplicates of held-out sources, in constant time each.

    Args:
        held_out: the held-out sources; empty ones do not count.

    Example:
        >>> near = NearDuplicates(["Save 3 files?", "OK"])
        >>> near.find("Save 12 files"), near.find("OK "), near.find("Cancel")
        ('near', 'same', None)
    """

    def __init__(self, held_out: Iterable[str] = ()) -> None:
        self._texts = {text.strip() for text in held_out} - {""}
        self._keys = {near_key(text) for text in self._texts}

    def find(self, source: str) -> Literal["same", "near"] | None:
        """Whether a source is a held-out source, a near-duplicate of one, or neither."""
        if not self._keys or near_key(source) not in self._keys:
            return None
        return "same" if source.strip() in self._texts else "near"
