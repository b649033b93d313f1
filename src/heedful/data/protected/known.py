"""Protected spans that are known without rules: the markup that a format has found in its texts."""

from collections.abc import Iterable, Mapping, Sequence

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

    def of(self, text: str) -> Chains:
        """The spans of a text, or of a part: what another part has of a pair leaves one alone."""
        found = self._spans.get(text)
        if found is not None:
            return found
        if not self._spans or text in self._texts:
            return ()
        if text not in self._parts:
            whole = next((one for one in self._spans if text in one), None)
            self._parts[text] = [] if whole is None else self._part(whole, text)
        return self._parts[text]

    def _part(self, whole: str, part: str) -> Chains:
        start = whole.index(part)
        end = start + len(part)
        kept = (
            [(first - start, last - start) for first, last in chain if start <= first < last <= end]
            for chain in self._spans[whole]
        )
        return [chain for chain in kept if chain]
