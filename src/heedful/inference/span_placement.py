"""Puts spans into a translation that was made without them, by word alignment.

For models without placeholders. A pair of tags encloses the translation of the enclosed words. A
single span is put between the words where it separates the weights as it does in the source.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from heedful.data.protected.known import KnownSpans
from heedful.data.protected.spans import Span, find_spans
from heedful.decoding import SearchOptions
from heedful.inference.token_weights import Weights, Words, token_weights
from heedful.inference.translation import Translation
from heedful.inference.translation_window import Advance
from heedful.inference.translator import Translator

_ENDS = ".,;:!?…)]}»”\"'"
_BEGINS = "([{«„“\"'¿¡"
_STOPS = tuple(".!?:;,")


@dataclass(frozen=True)
class TextWithoutSpans:
    """A text without its spans.

    Attributes:
        text: the text; one of two spaces around a removed span is kept.
        spans: the removed spans, in order.
    """

    text: str
    spans: tuple["RemovedSpan", ...]


@dataclass(frozen=True)
class RemovedSpan:
    """A span that was removed from a text.

    Attributes:
        text: the span.
        place: its position in characters of the text without spans.
        chain: spans with the same number belong together, like brackets.
        before: whether there was white space before it.
        after: whether there was white space after it.
    """

    text: str
    place: int
    chain: int
    before: bool
    after: bool


def remove_spans(text: str, spans: Sequence[Span]) -> TextWithoutSpans:
    """A text without spans.

    Example:
        >>> from heedful.data.protected.spans import find_spans
        >>> remove_spans("Press <b>OK</b> now", find_spans("Press <b>OK</b> now", ["tags"])).text
        'Press OK now'
    """
    parts: list[str] = []
    taken: list[RemovedSpan] = []
    length = place = 0

    def put(piece: str) -> int:
        """Append a piece; keep one space where a span was between two spaces or words."""
        last = parts[-1][-1:] if parts else ""
        if taken and _joins(last, piece[:1]):
            piece = " " + piece
        if piece[:1].isspace() and (not parts or parts[-1][-1:].isspace()) and taken:
            piece = piece[1:]
        if piece:
            parts.append(piece)
        return len(piece)

    for span in spans:
        length += put(text[place : span.start])
        before = span.start == 0 or text[span.start - 1].isspace()
        after = span.end == len(text) or text[span.end].isspace()
        taken.append(RemovedSpan(text[span.start : span.end], length, span.chain, before, after))
        place = span.end
    put(text[place:])
    bare = "".join(parts)
    return TextWithoutSpans(bare.rstrip() if taken and place == len(text) else bare, tuple(taken))


def _joins(last: str, first: str) -> bool:
    """Whether two words would become one without the span between them."""
    return bool(last and first) and (
        (first.isalnum() and (last.isalnum() or last in _STOPS)) or first in "—–"
    )


def place_spans(bare: TextWithoutSpans, translation: str, weights: Weights) -> str:
    """Insert the removed spans of a text into its translation.

    Each span is inserted exactly once, and pairs nest as in the source.

    Args:
        bare: from :func:`remove_spans`.
        translation: the translation of ``bare.text``.
        weights: (source word, target word) → weight; words are separated as by ``str.split``.
    """
    if not bare.spans:
        return translation
    placing = _Placing(bare, translation, weights)
    return placing.written(_tree(bare.spans), 0, len(translation))


@dataclass
class _Node:
    """A span, or a pair of spans with its content."""

    opening: RemovedSpan
    closing: RemovedSpan | None
    inside: "list[_Node]"


def _tree(spans: Sequence[RemovedSpan]) -> list[_Node]:
    """The outermost nodes, in the order of the source."""
    last = {span.chain: index for index, span in enumerate(spans)}
    roots: list[_Node] = []
    opened: list[_Node] = []
    for index, span in enumerate(spans):
        level = opened[-1].inside if opened else roots
        if opened and opened[-1].opening.chain == span.chain and last[span.chain] == index:
            opened.pop().closing = span
            continue
        node = _Node(span, None, [])
        level.append(node)
        is_first = not any(one.opening.chain == span.chain for one in opened)
        if is_first and last[span.chain] > index:
            opened.append(node)
    return roots


class _Placing:
    """Finds the position of each node in a translation, in characters."""

    def __init__(self, bare: TextWithoutSpans, translation: str, weights: Weights) -> None:
        self.text, self.translation = bare.text, translation
        source, target = Words.of(bare.text), Words.of(translation)
        self.source, self.target = source.tokens, target.tokens
        self.starts = source.word_starts, target.word_starts
        self.weights = token_weights(source, target, weights)

    def written(self, nodes: Sequence[_Node], start: int, end: int) -> str:
        """The translation from ``start`` to ``end`` with these nodes in it."""
        ranges = [(*self._range(node), number) for number, node in enumerate(nodes)]
        parts: list[str] = []
        place = start
        for low, high, number in sorted(ranges):
            node = nodes[number]
            low = min(max(low, place), end)
            high = min(max(high, low), end)
            parts.append(self.translation[place:low])
            if node.closing is None:
                parts.append(self._spaced(node.opening, low))
            else:
                inside = self.written(node.inside, low, high)
                parts += [node.opening.text, inside, node.closing.text]
            place = high
        return "".join([*parts, self.translation[place:end]])

    def _range(self, node: _Node) -> tuple[int, int]:
        covered = range(0)
        if node.closing is not None:
            verbatim = self._verbatim(node.opening.place, node.closing.place)
            if verbatim is not None:
                return verbatim
            covered = self._covered(node.opening.place, node.closing.place)
            if covered and (words := self._interval(covered)) is not None:
                return self._characters(words, node)
        gap = self._gap(node.opening.place)
        if node.closing is not None and covered and self.target:  # words without a link
            word = min(gap, len(self.target) - 1)
            return self._characters((word, word), node)
        glued_to_next = not node.opening.after and node.opening.before
        if gap == len(self.target) or (not node.opening.before and not glued_to_next and gap):
            at = self.target[gap - 1][1] if gap else 0
            at = at if gap < len(self.target) or not node.opening.before else len(self.translation)
        else:
            at = self.target[gap][0]
        return at, at

    def _verbatim(self, start: int, end: int) -> tuple[int, int] | None:
        """The position of the enclosed text, if source and translation have it equally often."""
        inner = self.text[start:end].strip()
        if not inner:
            return None
        pattern = re.compile(rf"(?<!\w){re.escape(inner)}(?!\w)")
        there = [found.span() for found in pattern.finditer(self.translation)]
        own = [found.start() for found in pattern.finditer(self.text)]
        if len(there) != len(own):
            return None
        begin = start + len(self.text[start:end]) - len(self.text[start:end].lstrip())
        return there[own.index(begin)] if begin in own else None

    def _covered(self, start: int, end: int) -> range:
        """The source words between two positions."""
        inside = [n for n, (low, high) in enumerate(self.source) if low < end and high > start]
        return range(inside[0], inside[-1] + 1) if inside else range(0)

    def _interval(self, covered: range) -> tuple[int, int] | None:
        """The target tokens with most weight from the covered tokens, and least from others."""
        gain = [0.0] * len(self.target)
        for (own, other), weight in self.weights.items():
            gain[other] += weight if own in covered else -weight
        best, found = 0.0, None
        total, low = 0.0, 0
        for high, own_gain in enumerate(gain):
            if total <= 0:
                total, low = 0.0, high
            total += own_gain
            if total > best + 1e-9:
                best, found = total, (low, high)
        return found

    def _characters(self, words: tuple[int, int], node: _Node) -> tuple[int, int]:
        """The positions around words; punctuation stays outside as in the source."""
        assert node.closing is not None
        low, high = self.target[words[0]][0], self.target[words[1]][1]
        first, last = node.opening.place, node.closing.place
        inner = self.text[first:last].strip()
        while (
            high > low + 1
            and self.translation[high - 1] in _ENDS
            and inner[-1:] != self.translation[high - 1]
        ):
            high -= 1
        while (
            low < high - 1
            and self.translation[low] in _BEGINS
            and inner[:1] != self.translation[low]
        ):
            low += 1
        return low, high

    def _gap(self, place: int) -> int:
        """The gap between target tokens that separates the weights as the source position does.

        It is between two words, unless the source position is inside a word.
        """
        token = sum(low < place for low, _ in self.source)
        if token == len(self.source):
            return len(self.target)
        if token == 0:
            return 0
        if token in self.starts[0]:
            gaps = sorted({*self.starts[1], len(self.target)})
        else:
            gaps = list(range(len(self.target) + 1))
        # Each weight counts for the gaps on its own side of its target token.
        before, after = [0.0] * (len(self.target) + 1), [0.0] * (len(self.target) + 1)
        for (own, other), weight in self.weights.items():
            near = weight / (1 + abs(own - token + (own < token)))
            if own < token:
                before[other + 1] += near
            else:
                after[other] += near
        first, second = list(accumulate(before)), list(accumulate(reversed(after)))[::-1]
        return max(gaps, key=lambda gap: first[gap] + second[gap], default=0)

    def _spaced(self, span: RemovedSpan, at: int) -> str:
        """A single span with the white space that it needs at its position."""
        before = self.translation[:at]
        after = self.translation[at:]
        left = span.before and bool(before) and not before[-1].isspace()
        right = span.after and bool(after) and not after[0].isspace()
        return " " * left + span.text + " " * right


PLACED = ("tags", "entity", "url", "email", "printf", "brace")
"""Rules for spans to remove for models without placeholders. Names and numbers remain text."""


class PlacingTranslator:
    """A translator that removes spans before translation and inserts them by word alignment.

    Args:
        translator: a translator whose model has word alignments.
        rules: the rules for spans to remove.
        known: text → further spans to remove.
    """

    def __init__(
        self,
        translator: Translator,
        rules: Sequence[str] = PLACED,
        known: KnownSpans | None = None,
    ) -> None:
        translator.require_alignments()
        self.translator, self.rules = translator, rules
        self.known = known or KnownSpans()

    def translate_windows(
        self,
        blocks: Iterable[Sequence[str]],
        *,
        options: SearchOptions | None = None,
        scores: bool = True,
        alignments: bool = False,
        advance: Advance | None = None,
        counts: Counter[str] | None = None,
    ) -> Iterator[list[Translation]]:
        """Like :meth:`Translator.translate_windows`; texts with spans have no alignment."""
        pending: deque[list[tuple[str, TextWithoutSpans]]] = deque()

        def bare_blocks() -> Iterator[list[str]]:
            for block in blocks:
                own = [(text, remove_spans(text, self._spans(text))) for text in block]
                pending.append(own)
                yield [bare.text for _, bare in own]

        for made in self.translator.translate_windows(
            bare_blocks(),
            options=options,
            scores=scores,
            alignments=True,
            advance=advance,
            counts=counts,
        ):
            pairs = zip(pending.popleft(), made, strict=True)
            yield [with_spans(text, bare, one, alignments) for (text, bare), one in pairs]

    def _spans(self, text: str) -> list[Span]:
        return find_spans(text, self.rules, self.known.of(text))


def with_spans(
    text: str, bare: TextWithoutSpans, one: Translation, alignments: bool = False
) -> Translation:
    """The translation of a text from that of the text without its spans.

    Args:
        text: the text.
        bare: from :func:`remove_spans`.
        one: the translation of ``bare.text``, with its alignment.
        alignments: whether to keep the alignment of a text without spans.
    """
    if not bare.spans:
        return one if alignments else replace(one, alignment=None)
    if not bare.text.strip():
        return Translation(text, text)
    weights = {} if one.alignment is None else one.alignment.weights()
    return replace(one, source=text, text=place_spans(bare, one.text, weights), alignment=None)
