"""Translation of a stream: a single search, which sequences enter as others leave it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from heedful.basics.thread_contention import each_without_contention
from heedful.decoding import Hypothesis, NewSources, SearchOptions, search_stream
from heedful.inference.assembly import PartResult, assemble
from heedful.inference.batches import source_of
from heedful.inference.searcher import Searcher, ended_by_limit
from heedful.inference.splitting import Part, split_lines
from heedful.inference.translation import Translation
from heedful.models.pairs import Source


class Sequenced(NamedTuple):
    """A sequence that enters a search."""

    key: int
    """Its unique number."""
    tokens: Sequence[int]
    """The tokens of the source, without END."""
    text: str = ""
    """The source."""


class Supplier(Protocol):
    """Supplies sequences to a running search."""

    def next(self) -> Sequence[Sequenced]:
        """The sequences that enter now, or none; called between two steps."""
        ...

    def left(self, key: int) -> None:
        """Called when a sequence has left the search."""
        ...

    def wanted(self, key: int) -> bool:
        """Whether the result of a sequence is still needed; if not, it leaves."""
        ...


class _StreamResult(NamedTuple):
    """The result for a sequence, and its maximum length."""

    own: Sequenced
    limit: int
    hypotheses: list[Hypothesis]


def find_stream(
    translator: Searcher,
    supplier: Supplier,
    options: SearchOptions,
    *,
    alignments: bool = False,
) -> Iterator[list[tuple[int, PartResult]]]:
    """The outputs for sequences of source tokens, as they are found, inside ``ready``.

    As :meth:`Translator.find` with models. If their states cannot join, supplied sequences are
    searched to the end before more are requested.

    Args:
        translator: the predictor.
        supplier: supplies the sequences.
        options: search settings.
        alignments: whether to compute weights between words.
    """
    under_way: dict[int, tuple[Sequenced, int]] = {}

    def begin() -> NewSources[Source] | None:
        given = supplier.next()
        if not given:
            return None
        source = source_of([one.tokens for one in given], translator.device)
        limits = translator.output_limits(source)
        pairs = zip(given, limits.tolist(), strict=True)
        under_way.update((one.key, (one, limit)) for one, limit in pairs)
        return NewSources(source, limits, [one.key for one in given])

    def still_wanted(key: int) -> bool:
        if supplier.wanted(key):
            return True
        under_way.pop(key)
        supplier.left(key)
        return False

    steps = search_stream(translator.decodable, begin, options, wanted=still_wanted)
    for finished in each_without_contention(steps, translator.device):
        written = []
        for key, hypotheses in finished:
            written.append(_StreamResult(*under_way.pop(key), hypotheses))
            supplier.left(key)
        yield _all_found(translator, written, options, alignments)


def _all_found(
    translator: Searcher, written: Sequence[_StreamResult], options: SearchOptions, alignments: bool
) -> list[tuple[int, PartResult]]:
    found = [
        PartResult(one.hypotheses, None, ended_by_limit(one.hypotheses, one.limit, options))
        for one in written
    ]
    if alignments:
        sources = [one.own.tokens for one in written]
        targets = [one.hypotheses[0].tokens for one in written]
        source = source_of(sources, translator.device)
        texts = [one.own.text for one in written]
        for one, soft in zip(found, translator.align(source, sources, targets, texts), strict=True):
            one.soft = soft
    return [(one.own.key, own) for one, own in zip(written, found, strict=True)]


class TextSupplier(Protocol):
    """A :class:`Supplier` of texts: each is one line, not empty, and not too long."""

    def next(self) -> Sequence[tuple[int, str]]:
        """The keys and texts of those that enter now."""
        ...

    def left(self, key: int) -> None:
        """As a supplier's."""
        ...

    def wanted(self, key: int) -> bool:
        """As a supplier's."""
        ...


def translated_stream(
    translator: Searcher,
    texts: TextSupplier,
    options: SearchOptions,
    *,
    alignments: bool = False,
) -> Iterator[list[tuple[int, Translation]]]:
    """The translations of texts, by their keys: :func:`find_stream` of their tokens."""
    supplier = _Encoding(translator, texts)
    exponent = options.length_penalty
    for found in find_stream(translator, supplier, options, alignments=alignments):
        made = []
        for key, one in found:
            text, part, after = supplier.texts.pop(key)
            threshold = translator.link_threshold
            whole = assemble(text, [part], [one], translator.protection, exponent, threshold, after)
            made.append((key, whole))
        yield made


class _Encoding:
    """Converts a supplier of texts to a supplier of sequences.

    Args:
        translator: the predictor, whose tokeniser is used.
        texts: the supplier of texts.
    """

    def __init__(self, translator: Searcher, texts: TextSupplier) -> None:
        self._protection = translator.protection
        self._supplier = texts
        self.texts: dict[int, tuple[str, Part, str]] = {}
        """Texts in progress, or finished since the last call, by their keys: the text, what is
        translated of it, and the white space after that."""
        self.left, self.wanted = texts.left, texts.wanted

    def next(self) -> list[Sequenced]:
        """As a supplier's."""
        given = self._supplier.next()
        own = [self._without_white_space(text) for _, text in given]
        self.texts.update(
            (key, (text, *each)) for (key, text), each in zip(given, own, strict=True)
        )
        texts = [part.text for part, _ in own]
        tokens = self._protection.encode(texts) if given else []
        keys = [key for key, _ in given]
        return [Sequenced(*each) for each in zip(keys, tokens, texts, strict=True)]

    def _without_white_space(self, text: str) -> tuple[Part, str]:
        """What is translated of a line: if spans are protected, outer white space is kept."""
        if self._protection.rules is None:
            return Part("", text), ""
        [part], after = split_lines(text)
        return part, after
