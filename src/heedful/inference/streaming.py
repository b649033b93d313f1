"""Translation of a stream: a single search, which sequences enter as others leave it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from heedful.basics.thread_contention import each_without_contention
from heedful.decoding import Hypothesis, NewSources, SearchOptions, search_stream
from heedful.inference.assembly import PartResult, assemble
from heedful.inference.batches import source_of
from heedful.inference.searcher import Searcher, ended_by_limit
from heedful.inference.splitting import Part
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
            text = supplier.texts.pop(key)
            parts = [Part("", text)]
            threshold = translator.link_threshold
            whole = assemble(text, parts, [one], translator.protection, exponent, threshold)
            made.append((key, whole))
        yield made


class _Encoding:
    """Converts a supplier of texts to a supplier of sequences.

    Args:
        translator: the predictor, whose tokeniser is used.
        texts: the supplier of texts.
    """

    def __init__(self, translator: Searcher, texts: TextSupplier) -> None:
        self._encode = translator.protection.encode
        self._supplier = texts
        self.texts: dict[int, str] = {}
        """Texts in progress, or finished since the last call, by their keys."""
        self.left, self.wanted = texts.left, texts.wanted

    def next(self) -> list[Sequenced]:
        """As a supplier's."""
        given = self._supplier.next()
        self.texts.update(given)
        tokens = self._encode([text for _, text in given]) if given else []
        return [Sequenced(key, own, text) for (key, text), own in zip(given, tokens, strict=True)]
