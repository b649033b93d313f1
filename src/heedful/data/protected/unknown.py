"""Names that no training text has, which translations keep as they are."""

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from heedful.data.protected.spans import Span

RULE = "name"
"""The rule of the spans of such names."""

_WORD = re.compile(r"[^\W_]\w*")
_ORDINAL = re.compile(r"\d+[a-z]{1,2}")
_LOOK_BACK = 40
"""Characters before a word in which the end of a sentence is looked for."""
_NOUNS_CAPITALISED = ("de", "lb")
# The share of its letters, and their least number, by which a word has relatives. At the start of
# a sentence, where all words are capitalised, a form of a known word is more probable than a name.
_STEM, _STEM_AT_START = (0.8, 5), (0.5, 4)
_SENTENCE_END = re.compile(r"[.!?:;…。！？]\W*$|^\W*$")


class KnownWords:
    """The words of the training sources, ignoring case; finds names in a text that are not known.

    A word that no training source has is taken for a name if it has a digit, an underscore or a
    capital letter after the first letter. So is a capitalised word, unless a known word, which is
    probably another form of it, begins with the same letters: with four fifths of them, or with
    half of them at the start of a sentence. After a name, any unknown capitalised word is one.
    German and Luxembourgish capitalise all nouns, so that capitals are no sign there.

    Args:
        sources: the training sources.
        language: code of the source language; None if it is not known.

    Example:
        >>> known = KnownWords(["The build has failed.", "Open the file"])
        >>> text = "Failing build: Zorbix opens files with GPT4."
        >>> [text[span.start : span.end] for span in known.names(text)]
        ['Zorbix', 'GPT4']
    """

    def __init__(self, sources: Iterable[str], language: str | None = None) -> None:
        words = {word.casefold() for text in sources for word in _WORD.findall(text)}
        self._words, self._sorted = words, sorted(words)
        code = re.split("[-_@.]", (language or "").casefold())[0]
        self._capital_is_a_sign = code not in _NOUNS_CAPITALISED

    def __contains__(self, word: str) -> bool:
        return word.casefold() in self._words

    def names(self, text: str, spans: Sequence[Span] = ()) -> list[Span]:
        """The unknown names of a text, outside of the spans that are protected already.

        Names with only white space between them are one span.
        """
        taken = bytearray(len(text))
        for span in spans:
            taken[span.start : span.end] = b"\1" * (span.end - span.start)
        chain = 1 + max((span.chain for span in spans), default=-1)
        found: list[Span] = []
        for word in _WORD.finditer(text):
            start, end = word.span()
            if any(taken[start:end]) or word[0] in self:
                continue
            follows = bool(found) and text[found[-1].end : start].isspace()
            capitalised = self._capital_is_a_sign and word[0][0].isupper()
            before = text[max(0, start - _LOOK_BACK) : start]
            if not (follows and capitalised) and not self._is_name(word[0], before):
                continue
            if follows:
                found[-1] = found[-1]._replace(end=end)
            else:
                found.append(Span(start, end, RULE, chain + len(found)))
        return found

    def _is_name(self, word: str, before: str) -> bool:
        """Whether an unknown word after the text ``before`` looks like a name."""
        if len(word) < 2 or _ORDINAL.fullmatch(word) or word.isdigit():
            return False
        if any(one.isupper() or one.isdigit() or one == "_" for one in word[1:]):
            return True
        if not self._capital_is_a_sign or not word[0].isupper():
            return False
        at_start = _SENTENCE_END.search(before) is not None
        return not self._has_relative(word, *(_STEM_AT_START if at_start else _STEM))

    def _has_relative(self, word: str, share: float, least: int) -> bool:
        """Whether a known word begins with this share of the letters."""
        stem = word.casefold()[: max(least, math.ceil(share * len(word)))]
        place = bisect_left(self._sorted, stem)
        return place < len(self._sorted) and self._sorted[place].startswith(stem)
