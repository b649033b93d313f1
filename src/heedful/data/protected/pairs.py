"""Protected spans on both sides of a pair, which training replaces with equal placeholders."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from heedful.data.examples import Pair
from heedful.data.protected.adjusting import (
    ACCELERATORS,
    ADJUSTMENTS,
    Adjustment,
    accelerators,
    adjustment_for,
)
from heedful.data.protected.known import KnownSpans
from heedful.data.protected.numbers import localise
from heedful.data.protected.rules import LITERAL
from heedful.data.protected.spans import (
    Protected,
    Span,
    find_spans,
    number_spans,
    replace_spans,
)
from heedful.data.protected.unknown import KnownWords
from heedful.data.subwords import PLACEHOLDERS


@dataclass(frozen=True)
class Rules:
    """Which spans are protected.

    Attributes:
        names: of :data:`heedful.data.protected.rules.NAMES`, or expressions between slashes.
        source: code of the source language, for numbers.
        target: code of the target language, for numbers.
        known: spans of certain texts that are known without rules, such as a document's markup.
        words: the words of the training sources, if unknown names are kept; None otherwise.
    """

    names: tuple[str, ...]
    source: str | None = None
    target: str | None = None
    known: KnownSpans = field(default_factory=KnownSpans, compare=False)
    words: KnownWords | None = field(default=None, compare=False)

    def rendering(self, rule: str, text: str) -> str:
        """The text of a source span in the target."""
        return localise(text, self.source, self.target) if rule == "number" else text

    def protect(self, text: str) -> Protected:
        """Replace spans of a source with placeholders for their texts in the target.

        The result also says how the translation is adjusted to the source.
        """
        if not any(rule in ADJUSTMENTS for rule in self.names):
            found = self._protect(text)
            last = _literal_block(found)
            return replace(found, adjustment=Adjustment(last=last)) if last else found
        known = self.known.of(text)
        plain, marker, letter = (text, "", "") if known else self.without_accelerator(text)
        found = self._protect(plain)
        own, adjustment = adjustment_for(found.text, self.names, self.target)
        last = _literal_block(found)
        adjustment = replace(adjustment, marker=marker, letter=letter, last=last)
        return replace(found, text=own, adjustment=adjustment)

    def without_accelerator(self, text: str) -> tuple[str, str, str]:
        """A text without its accelerator marker, the marker, and the letter that it marks.

        The marker is empty if the text does not have exactly one outside of protected spans.
        """
        for rule, marker in ACCELERATORS.items():
            if rule not in self.names or marker not in text or len(text) > _LONGEST_LABEL:
                continue
            found = accelerators(text, marker)
            # An underscore in a word looks like an identifier.
            spans = find_spans(text, [name for name in self.names if name != "identifier"])
            free = [
                place
                for place in found
                if not any(span.start <= place[0] < span.end for span in spans)
            ]
            if len(free) == 1:
                start, end, letter = free[0]
                return text[:start] + text[end:], marker, letter
        return text, "", ""

    def _protect(self, text: str) -> Protected:
        known = self.known.of(text)
        own = known or self.words or any(rule.startswith("/") for rule in self.names)
        if not own and not _MAY_HAVE.search(text):
            return Protected(text, {})
        spans = find_spans(text, self.names, known)
        if self.words is not None:
            spans = sorted([*spans, *self.words.names(text, spans)])
        found = replace_spans(text, spans)
        rules = {number: span.rule for span, number in number_spans(spans).items()}
        rendered = {
            number: self.rendering(rules[number], own) for number, own in found.spans.items()
        }
        percent = "printf" in rules.values() and "%" not in found.text
        return replace(found, spans=rendered, percent=percent)


def _literal_block(found: Protected) -> str:
    """The placeholder of the ``::`` that announces a literal block, which ends its paragraph."""
    last = re.search(r"⟦(\d{1,2})⟧$", found.text)
    return last[0] if last and found.spans.get(int(last[1])) == "::" else ""


# What a text must have for any of the rules to find something in it.
_MAY_HAVE = re.compile(r"[%{<&\\/@`*_|⟦\d$\[~:]|[a-z][A-Z]|\(\)|--|www")

_LONGEST_LABEL = 500
"""Maximum number of characters of a text that may have an accelerator."""

_EMPHASIS = frozenset({"*", "**", "_", "__"})

Key = tuple[str, ...]


def protect_pair(pair: Pair, rules: Rules, first: int = 0) -> Pair:
    """Replace common protected spans of a pair with equal placeholders on both sides.

    A span that does not occur equally often on both sides remains text, so that a model does not
    learn to drop or invent it.

    Args:
        pair: texts.
        rules: what is protected.
        first: the number of the first placeholder. Another number for each pair trains all 64.

    Example:
        >>> protect_pair(Pair("See %s (p. 12)", "Siehe S. 12: %s"), Rules(("printf", "number")))
        Pair(source='See ⟦0⟧ (p. ⟦1⟧)', target='Siehe S. ⟦1⟧: ⟦0⟧')
    """
    source, target = protect_both(pair, rules, first)
    return Pair(source.text, target.text)


def protect_training_pair(pair: Pair, rules: Rules, first: int = 0) -> Pair | None:
    """The same as :func:`protect_pair`, for training: targets without spans of their own.

    Markers of emphasis that only the target has are removed, because translators emphasise foreign
    words. If the target has any other span of its own, the pair is not a training example and the
    result is None.
    """
    source, target = protect_both(pair, rules, first)
    looks_like = [span for span in find_spans(pair.target, ()) if span.rule == LITERAL]
    if len(looks_like) > sum(bool(find_spans(text, ())) for text in target.spans.values()):
        return None
    text = target.text
    for span in reversed(find_spans(text, rules.names)):
        if span.rule == LITERAL:  # a placeholder that was put there
            continue
        if text[span.start : span.end] not in _EMPHASIS:
            return None
        text = text[: span.start] + text[span.end :]
    return Pair(source.text, text)


def protect_both(pair: Pair, rules: Rules, first: int = 0) -> tuple[Protected, Protected]:
    """The same as :func:`protect_pair`, with the texts of the placeholders on both sides."""
    pair = Pair(*(rules.without_accelerator(text)[0] for text in pair))
    found, other = find_spans(pair.source, rules.names), find_spans(pair.target, rules.names)
    if not found or not other:
        return Protected(pair.source, {}), Protected(pair.target, {})
    partners = _partners(_chains(pair.source, found), _chains(pair.target, other), rules)
    kept = [span for span in found if span in partners]
    source = replace_spans(pair.source, kept, first)
    numbers = {partners[span]: number for span, number in number_spans(kept, first).items()}
    texts = {number: pair.target[span.start : span.end] for span, number in numbers.items()}
    return source, Protected(_with_numbers(pair.target, numbers), texts)


def _chains(text: str, spans: Sequence[Span]) -> list[list[tuple[Span, str]]]:
    chains: dict[int, list[tuple[Span, str]]] = {}
    for span in spans:
        chains.setdefault(span.chain, []).append((span, text[span.start : span.end]))
    return list(chains.values())


def _partners(
    source: list[list[tuple[Span, str]]], target: list[list[tuple[Span, str]]], rules: Rules
) -> dict[Span, Span]:
    """Map spans of the source to spans of the target."""
    wanted: dict[Key, list[list[tuple[Span, str]]]] = defaultdict(list)
    there: dict[Key, list[list[tuple[Span, str]]]] = defaultdict(list)
    for chain in target:
        there[tuple(text for _, text in chain)].append(chain)
    for chain in source:
        plain = tuple(text for _, text in chain)
        rendered = tuple(rules.rendering(span.rule, text) for span, text in chain)
        wanted[rendered if rendered in there else plain].append(chain)
    return {
        span: partner
        for key, chains in wanted.items()
        if len(chains) == len(there[key])
        for chain, other in zip(chains, there[key], strict=True)
        for (span, _), (partner, _) in zip(chain, other, strict=True)
    }


def _with_numbers(text: str, numbers: Mapping[Span, int]) -> str:
    parts: list[str] = []
    place = 0
    for span in sorted(numbers):
        parts += [text[place : span.start], PLACEHOLDERS[numbers[span]]]
        place = span.end
    return "".join([*parts, text[place:]])
