"""Protected spans: parts of a text that its translation must contain unchanged.

They become placeholder tokens (``⟦0⟧`` to ``⟦63⟧``), which every subword vocabulary has, and are
restored in the translation.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from heedful.data.protected.adjusting import ADJUSTMENTS, Adjustment
from heedful.data.protected.known import Chains
from heedful.data.protected.rules import LITERAL, NAMES, matches, may_match
from heedful.data.subwords import PLACEHOLDERS

SINGLES, ORDERED, PAIRS = 24, 8, 16
"""Maximum numbers of single spans, ordered spans and pairs in a text.

Placeholders are numbered in this order. Further single spans and pairs remain text; if there are
too many ordered spans, they become single spans.
"""

_UNNAMED = re.compile(r"%[^%($]*[A-Za-z@]|\{(?:![rsa])?(?::[^{}]*)?\}")
_PLACEHOLDER = re.compile(r"⟦(\d{1,2})⟧")


class Span(NamedTuple):
    """A protected span: ``text[start:end]``.

    Attributes:
        start: start in characters.
        end: end in characters, exclusive.
        rule: the rule that found it.
        chain: spans with the same number keep their order and nest like brackets.
        ordered: whether it keeps its order among such spans, as ``%s`` without a name does.
    """

    start: int
    end: int
    rule: str
    chain: int
    ordered: bool = False


@dataclass(frozen=True)
class Protected:
    """A text with placeholder tokens for its protected spans.

    Attributes:
        text: with placeholders.
        spans: number of the placeholder → its text.
        chains: numbers of placeholders that keep their order and nest like brackets; single
            placeholders are in no chain.
        left: number of spans that remain text because there are too many.
        percent: whether the text is a format string, in which ``%%`` is a percent sign.
        adjustment: how its translation is adjusted to it.
    """

    text: str
    spans: Mapping[int, str]
    chains: Sequence[Sequence[int]] = ()
    left: int = 0
    percent: bool = False
    adjustment: Adjustment | None = None

    @property
    def load(self) -> float:
        """The share of placeholders that the text needs; above 1 if there are too few."""
        pairs = sum(number >= SINGLES + ORDERED for number in self.spans) / 2
        singles = sum(number < SINGLES for number in self.spans)
        load = max(singles / SINGLES, pairs / PAIRS)
        return load if not self.left else 1 + (self.left + singles + pairs) / SINGLES

    def is_kept(self, translation: str) -> bool:
        """Whether a translation has each placeholder once, no others, and chains in order."""
        found = [int(number) for number in _PLACEHOLDER.findall(translation)]
        ordered = [number for number in found if SINGLES <= number < SINGLES + ORDERED]
        if sorted(found) != sorted(self.spans) or ordered != sorted(ordered):
            return False
        open_chains: list[int] = []
        links = {n: (c, i) for c, chain in enumerate(self.chains) for i, n in enumerate(chain)}
        for number in found:
            chain, index = links.get(number, (-1, 0))
            if chain < 0:
                continue
            if index == 0:
                open_chains.append(chain)
            elif not open_chains or open_chains[-1] != chain or self._follows(found, number):
                return False
            if index == len(self.chains[chain]) - 1:
                open_chains.pop()
        return True

    def _follows(self, found: Sequence[int], number: int) -> bool:
        """Whether a placeholder is before one that should precede it in its chain."""
        chain = next(chain for chain in self.chains if number in chain)
        before = chain[chain.index(number) - 1]
        return found.index(before) > found.index(number)

    def restore(self, translation: str) -> str:
        """Replace the placeholders of a translation with their texts.

        Unknown placeholders are removed. Other percent signs of a format string are escaped. A span
        that would become part of a word, but is not in the source, gets a space between.
        """
        if self.adjustment is not None:
            translation = self.adjustment.applied(translation)
        translation = self.spaced(translation)
        if self.percent:
            translation = translation.replace("%", "%%")
        parts: list[str] = []
        place, number = 0, -1
        for found in _PLACEHOLDER.finditer(translation):
            words = translation[place : found.start()]
            parts += [self._space(number, parts, words, after=True), words]
            number, place = int(found[1]), found.end()
            own = self.spans.get(number, "")
            parts += [self._space(number, parts, own), own]
        words = translation[place:]
        return "".join([*parts, self._space(number, parts, words, after=True), words])

    def spaced(self, translation: str) -> str:
        """A translation with placeholders whose pairs have white space inside where the source has.

        ``*short *`` would be no emphasis in Markdown: the space moves out of the pair, or is
        removed if punctuation follows. Only white space changes.
        """
        first = SINGLES + ORDERED
        found = map(int, _PLACEHOLDER.findall(translation))
        pairs = [number for number in found if number >= first and number in self.spans]
        # From the inside: white space may move through several marks.
        for number in reversed([number for number in pairs if number % 2 == 0]):
            translation = self._spaced_mark(translation, number)
        for number in (number for number in pairs if number % 2):
            translation = self._spaced_mark(translation, number)
        return translation

    def _spaced_mark(self, translation: str, number: int) -> str:
        """White space on both sides of a placeholder that opens or closes a pair."""
        mark = PLACEHOLDERS[number]
        closes = number % 2 == 1
        source, target = (_outside_in(text, mark, closes) for text in (self.text, translation))
        if source is None or target is None:
            return translation
        before, outer, inner, after = target
        if source[2]:
            outer, inner = outer if source[1] else "", inner or source[2]
        elif inner:
            beside = after[:1] if closes else before[-1:]
            blocked = not beside or beside in (_CLOSING if closes else _OPENING)
            outer, inner = outer or ("" if blocked else inner), ""
        middle = inner + mark + outer if closes else outer + mark + inner
        return before + middle + after

    def _space(
        self, number: int, parts: Sequence[str], following: str, *, after: bool = False
    ) -> str:
        """A space if a span would become part of a word, but is not in the source.

        Args:
            number: of the span's placeholder.
            parts: what stands before.
            following: the span, or with ``after`` the text after it.
            after: whether the span is the last of ``parts``.
        """
        last = next((part[-1] for part in reversed(parts) if part), "")
        if number not in self.spans or not (_joins(last) and _joins(following[:1])):
            return ""
        before, _, behind = self.text.partition(PLACEHOLDERS[number])
        own = behind[:1] if after else before[-1:]
        return "" if _joins(own) or own in _BRACKETS else " "


def _outside_in(text: str, mark: str, closes: bool) -> tuple[str, str, str, str] | None:
    """The text before a mark, white space outside and inside of its pair, and the text after it.

    None if the text does not have the mark exactly once.
    """
    if text.count(mark) != 1:
        return None
    before, _, after = text.partition(mark)
    own, other = before.rstrip(), after.lstrip()
    left, right = before[len(own) :], after[: len(after) - len(other)]
    return (own, right, left, other) if closes else (own, left, right, other)


_OPENING = "([{«„“\"'¿¡"
_CLOSING = ".,;:!?…)]}»”\"'"
"""Characters that have no white space on their inner side."""

_BRACKETS = ("⟦", "⟧")
"""What stands beside a placeholder if another one follows at once."""


def _joins(character: str) -> bool:
    """Whether a character is part of a word that spaces separate from others."""
    return character.isdigit() or character.lower() != character.upper()


KNOWN = "known"
"""The rule of spans that are known without rules."""


def find_spans(text: str, rules: Sequence[str], known: Chains = ()) -> list[Span]:
    """The protected spans of a text, from left to right, without overlaps.

    Text that looks like a placeholder token is always protected. If two rules match at the same
    place, known spans have precedence, then the user's own expressions, then the earlier rule of
    :data:`heedful.data.protected.rules.NAMES`.
    """
    taken = bytearray(len(text))
    spans: list[Span] = []
    chains = 0
    ordered = sorted({LITERAL, *rules}.difference(ADJUSTMENTS), key=_precedence)
    characters = set(text)
    possible = [rule for rule in ordered if may_match(characters, rule)]
    for rule, found in [(KNOWN, known), *((rule, matches(text, rule)) for rule in possible)]:
        for chain in found:
            if any(start == end or any(taken[start:end]) for start, end in chain):
                continue
            for start, end in chain:
                taken[start:end] = b"\1" * (end - start)
                counts = is_ordered(text[start:end], rule)
                spans.append(Span(start, end, rule, chains, counts))
            chains += 1
    return _nested(sorted(spans))


def is_ordered(text: str, rule: str) -> bool:
    """Whether a placeholder is matched to its value by its position: ``%s``, ``{}``."""
    return rule in ("printf", "brace") and _UNNAMED.fullmatch(text) is not None


def _precedence(rule: str) -> tuple[int, str]:
    """The sort key of a rule: the user's expressions first, then the order of the names."""
    return (NAMES.index(rule), "") if rule in NAMES else (-1, rule)


def _nested(spans: list[Span]) -> list[Span]:
    """Divide chains that overlap without nesting into single spans."""
    last = {span.chain: place for place, span in enumerate(spans)}
    first: dict[int, int] = {}
    for place, span in enumerate(spans):
        first.setdefault(span.chain, place)
    open_chains: list[int] = []
    broken: set[int] = set()
    for place, span in enumerate(spans):
        if span.chain in broken or first[span.chain] == last[span.chain]:
            continue
        if place == first[span.chain]:
            open_chains.append(span.chain)
            continue
        while open_chains[-1] != span.chain:
            broken.add(open_chains.pop())
        if place == last[span.chain]:
            open_chains.pop()
    fresh = 1 + max(last, default=0)
    return [
        span._replace(chain=fresh + place) if span.chain in broken else span
        for place, span in enumerate(spans)
    ]


def replace_spans(text: str, spans: Sequence[Span], first: int = 0) -> Protected:
    """Replace the spans of a text with placeholders.

    The ends of a chain become a pair of placeholders: ``⟦32⟧`` opens what ``⟦33⟧`` closes, and so
    on to ``⟦62⟧`` and ``⟦63⟧``. Several ordered spans become ``⟦24⟧`` to ``⟦31⟧``, all others
    ``⟦0⟧`` to ``⟦23⟧``.

    Args:
        text: the text.
        spans: all or some of the spans from :func:`find_spans`, as whole chains.
        first: the first number; numbers wrap around.

    Example:
        >>> text = "Open <b>%s</b> now"
        >>> replace_spans(text, find_spans(text, ["tags", "printf"])).text
        'Open ⟦32⟧⟦0⟧⟦33⟧ now'
    """
    numbers = number_spans(spans, first)
    parts: list[str] = []
    texts: dict[int, str] = {}
    place = 0
    for span, number in numbers.items():
        parts += [text[place : span.start], PLACEHOLDERS[number]]
        texts[number] = text[span.start : span.end]
        place = span.end
    parts.append(text[place:])
    chains: dict[int, list[int]] = {}
    for span, number in numbers.items():
        chains.setdefault(span.chain, []).append(number)
    longer = [tuple(chain) for chain in chains.values() if len(chain) > 1]
    return Protected("".join(parts), texts, tuple(longer), len(spans) - len(numbers))


def number_spans(spans: Sequence[Span], first: int = 0) -> dict[Span, int]:
    """The number of the placeholder of each span, in the order of spans.

    Chains for which no number is left are omitted.
    """
    chains: dict[int, list[Span]] = {}
    for span in spans:
        chains.setdefault(span.chain, []).append(span)
    numbers: dict[Span, int] = {}
    ordered = [span for span in spans if span.ordered]
    if 1 < len(ordered) <= ORDERED:  # increasing numbers, wherever they begin
        begin = SINGLES + first % (ORDERED + 1 - len(ordered))
        numbers = {span: begin + place for place, span in enumerate(ordered)}
    singles = pairs = 0
    for chain in chains.values():
        if chain[0] in numbers:
            continue
        inner = chain[1:-1] if len(chain) > 1 else chain
        paired = len(chain) > 1
        if singles + len(inner) > SINGLES or pairs + paired > PAIRS:
            continue
        for span in inner:
            numbers[span] = (first + singles) % SINGLES
            singles += 1
        if paired:
            opening = SINGLES + ORDERED + 2 * ((first + pairs) % PAIRS)
            numbers[chain[0]], numbers[chain[-1]] = opening, opening + 1
            pairs += 1
    return dict(sorted(numbers.items()))


def protect(text: str, rules: Sequence[str], first: int = 0) -> Protected:
    """Replace the spans that the rules find with placeholders."""
    return replace_spans(text, find_spans(text, rules), first)
