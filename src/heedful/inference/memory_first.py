"""Translation with a memory: exact matches are taken from it, other texts are translated."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from heedful.data.memory import Match, Memory
from heedful.decoding import SearchOptions
from heedful.inference.span_placement import PlacingTranslator
from heedful.inference.translation import Translation
from heedful.inference.translation_window import Advance
from heedful.inference.translator import Translator


def translate_with_memory(
    translator: Translator | PlacingTranslator,
    memory: Memory,
    blocks: Iterable[Sequence[str]],
    *,
    options: SearchOptions,
    scores: bool = True,
    alignments: bool = False,
    contexts: Sequence[str | None] | None = None,
    keeps: Callable[[str, str], bool] = lambda text, target: True,
    advance: Advance | None = None,
    counts: Counter[str] | None = None,
) -> Iterator[list[Translation]]:
    """The same as :meth:`Translator.translate_windows`, with exact matches from the memory.

    Args:
        translator: translates texts without a match.
        memory: units with their translations.
        blocks: windows of texts.
        options: search settings.
        scores: whether to compute scores; those of matches are 0.
        alignments: whether to compute alignments; matches have none.
        contexts: the context of each text, in the order of all windows; None for none.
        keeps: whether a match may be used for a text.
        advance: called with progress.
        counts: see :meth:`Translator.translate_windows`.
    """
    pending: deque[tuple[Sequence[str], list[Match | None]]] = deque()
    known = iter(contexts or ())

    def rest() -> Iterator[list[str]]:
        for block in blocks:
            found = [memory.find(text, next(known, None)) for text in block]
            found = [
                match if match is None or keeps(text, match.target) else None
                for text, match in zip(block, found, strict=True)
            ]
            if advance is not None:
                advance(sum(match is not None for match in found))
            pending.append((block, found))
            yield [text for text, match in zip(block, found, strict=True) if match is None]

    for made in translator.translate_windows(
        rest(),
        options=options,
        scores=scores,
        alignments=alignments,
        advance=advance,
        counts=counts,
    ):
        block, found = pending.popleft()
        own = iter(made)
        yield [
            next(own) if match is None else Translation(text, match.target, match=match)
            for text, match in zip(block, found, strict=True)
        ]
