"""Exact matches of requests in a translation memory; only other texts are translated."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from heedful.data.memory import Match, Memory
from heedful.inference.texts import SplitText, join_translations, split_at_line_breaks
from heedful.inference.translation import Translation


class _Lines(NamedTuple):
    """The lines of a text, some of which have a match."""

    cut: SplitText
    found: list[Match | None]


class Matches:
    """The matches of texts in a memory, of whole texts or of their lines.

    Args:
        memory: the memory of the model; None to translate all texts.
        texts: sources.
        exponent: the exponent of the length penalty, for scores of joined lines.
        keeps: whether a match may be used for a text.
        contexts: the context of each text; None for none.

    Example:
        >>> from heedful.data.memory import Entry
        >>> found = Matches(Memory([Entry("Open", "Öffnen")]), ["Open\\nNow", "Close"])
        >>> found.rest
        ['Now', 'Close']
        >>> translated = [Translation("Now", "Jetzt"), Translation("Close", "Schließen")]
        >>> [one.text for one in found.joined(translated)]
        ['Öffnen\\nJetzt', 'Schließen']
    """

    def __init__(
        self,
        memory: Memory | None,
        texts: Sequence[str],
        exponent: float = 1.0,
        keeps: Callable[[str, str], bool] = lambda text, target: True,
        contexts: Sequence[str | None] | None = None,
    ) -> None:
        self._texts, self._exponent = list(texts), exponent
        self._keeps = keeps
        self._found = [
            None if memory is None else self._find(memory, text, context)
            for text, context in zip(texts, contexts or [None] * len(texts), strict=True)
        ]

    @property
    def rest(self) -> list[str]:
        """The texts, or lines, without a match."""
        rest: list[str] = []
        for text, found in zip(self._texts, self._found, strict=True):
            if found is None:
                rest.append(text)
            elif isinstance(found, _Lines):
                lines = zip(found.cut.parts, found.found, strict=True)
                rest += [line.text for line, match in lines if match is None]
        return rest

    def joined(self, translations: Sequence[Translation]) -> list[Translation]:
        """The results for all texts, from the translations of `rest`."""
        rest = iter(translations)

        def result(text: str, found: Match | None) -> Translation:
            return next(rest) if found is None else Translation(text, found.target, match=found)

        results = []
        for text, found in zip(self._texts, self._found, strict=True):
            if not isinstance(found, _Lines):
                results.append(result(text, found))
                continue
            lines = zip(found.cut.parts, found.found, strict=True)
            parts = [result(line.text, match) for line, match in lines]
            results.append(join_translations(found.cut, parts, exponent=self._exponent))
        return results

    def _find(self, memory: Memory, text: str, context: str | None) -> Match | _Lines | None:
        whole = self._match(memory, text, context)
        lines, after = split_at_line_breaks(text)
        if whole is not None or len(lines) < 2:
            return whole
        found = [self._match(memory, line.text) for line in lines]
        if not any(found):
            return None
        return _Lines(SplitText(text, tuple(lines), (0,) * len(lines), after), found)

    def _match(self, memory: Memory, text: str, context: str | None = None) -> Match | None:
        found = memory.find(text, context)
        return found if found is None or self._keeps(text, found.target) else None
