"""Protected spans that are known without rules: the markup that a format has found in its texts."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from heedful.data.protected.rules import Piece

Chains = Sequence[Sequence[Piece]]
"""Spans of a text: chains of their starts and ends, in characters."""


class KnownSpans:
    """The known spans of texts, and of parts into which long texts are split.

    Args:
        texts: all texts; those without known spans, too, so that they are not taken for parts.
        spans: the known spans of some of them.

    Example:
        >>> text = "Say *one* now. Stop."
        >>> known = KnownSpans([text], {text: [[(4, 5), (8, 9)]]})
        >>> known.of("Say *one* now."), known.of("Stop.")
        ([[(4, 5), (8, 9)]], [])
    """

    def __init__(
        self, texts: Iterable[str] = (), spans: Mapping[str, Chains] | None = None
    ) -> None:
        self._spans = spans or {}
        self._texts = frozenset(texts)
        self._parts: dict[str, Chains] = {}
        # One string is searched for a part in the time of a few characters each.
        self._wholes = list(self._spans)
        self._joined = "\0".join(self._wholes)
        self._starts = [0, *accumulate(len(text) + 1 for text in self._wholes)]

    def of(self, text: str) -> Chains:
        """The spans of a text, or of a part: what another part has of a pair leaves one alone."""
        found = self._spans.get(text)
        if found is not None:
            return found
        if not self._spans or text in self._texts:
            return ()
        if text not in self._parts:
            self._parts[text] = self._part(text)
        return self._parts[text]

    def keeps(self, text: str, translation: str) -> bool:
        """Whether a translation has each known span of a text as often as the text."""
        spans = {text[start:end] for chain in self.of(text) for start, end in chain}
        return all(text.count(span) == translation.count(span) for span in spans)

    def _part(self, part: str) -> Chains:
        place = self._joined.find(part)
        if place < 0 or "\0" in part:
            return []
        number = bisect_right(self._starts, place) - 1
        whole = self._wholes[number]
        start = place - self._starts[number]
        end = start + len(part)
        kept = (
            [(first - start, last - start) for first, last in chain if start <= first < last <= end]
            for chain in self._spans[whole]
        )
        return [chain for chain in kept if chain]
