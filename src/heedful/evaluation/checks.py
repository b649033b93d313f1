"""Checks of translations before delivery: protected spans, and common mistakes."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from heedful.data.examples import Pair
from heedful.data.protected.adjusting import ACCELERATORS, final_mark
from heedful.data.protected.messages import Message
from heedful.data.protected.numbers import find_grouped
from heedful.data.protected.pairs import Rules
from heedful.data.protected.spans import Span, find_spans
from heedful.data.units import Unit

CHECKS = {
    "untranslated": "the translation is empty",
    "same": "the translation equals the source, which contains words",
    "placeholders": "placeholders, tags, addresses or names are missing or were added",
    "markup": "markup of the text (reStructuredText, Markdown) is missing or was added",
    "tags": "tags do not nest",
    "accelerators": "the accelerator marker (&File, _File) is missing or was added",
    "numbers": "numbers are missing or were added",
    "white-space": "white space at the beginning or the end differs",
    "line-breaks": "the number of line breaks differs",
    "punctuation": "the final punctuation differs in kind",
    "doubled-words": "a word is doubled, but not in the source",
    "length": "longer than the limit",
    "terms": "a term is not translated as the list of terms says",
    "inconsistent": "the same source has another translation",
    "duplicate": "another unit has the same id, or the same source and context",
}
"""The checks and their findings."""

SERIOUS = frozenset({"placeholders", "tags", "numbers", "untranslated", "length"})
"""Checks whose findings mean that a file should not be delivered."""

_NUMBER = re.compile(r"\d+")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_DOUBLED = re.compile(r"\b(\w+)\s+\1\b", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """A finding of a check in a unit.

    Attributes:
        unit: the name of the unit.
        check: one of :data:`CHECKS`.
        detail: a description of the problem.
        source: the unit's source.
        target: its translation.
    """

    unit: str
    check: str
    detail: str
    source: str
    target: str

    @property
    def serious(self) -> bool:
        """Whether the file should not be delivered with this finding."""
        return self.check in SERIOUS


def check_units(
    units: Iterable[Unit],
    rules: Rules,
    longest: int | None = None,
    terms: Iterable[Pair] = (),
) -> Iterator[tuple[Unit, list[Finding]]]:
    """Each unit with the findings of the checks.

    Args:
        units: sources with translations.
        rules: the spans that a translation must keep.
        longest: the maximum number of characters of a translation, for units without a limit of
            their own; None for no limit.
        terms: terms with their translations; several of one term are alternatives.
    """
    listed = Terms(terms)
    before = _Before()
    for unit in units:
        found = chain(
            _findings(unit, rules, unit.longest or longest),
            listed.findings(unit),
            before.findings(unit),
        )
        yield unit, [Finding(unit.name, *one, unit.source, unit.target) for one in found]


class Terms:
    """Terms with their translations.

    A term is found as whole words in the source, whatever their case. Its translation must be in
    the target, whatever its case; endings and parts of compounds may follow or precede it.

    Args:
        pairs: terms with their translations; several of one term are alternatives.
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._wanted: defaultdict[str, list[str]] = defaultdict(list)
        for term, wanted in pairs:
            if term.strip() and wanted.strip():
                self._wanted[_plain(term)].append(_plain(wanted))
        longest_first = sorted(self._wanted, key=len, reverse=True)
        one_of = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(rf"(?<!\w)(?:{one_of})(?!\w)") if one_of else None

    def findings(self, unit: Unit) -> Iterator[tuple[str, str]]:
        """The terms of a translated unit that are not translated as listed."""
        if self._pattern is None or not unit.target.strip():
            return
        target = _plain(unit.target)
        for term in dict.fromkeys(self._pattern.findall(_plain(unit.source))):
            wanted = self._wanted[term]
            if not any(one in target for one in wanted):
                yield "terms", f"{term}: {' or '.join(wanted)}"


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


class _Before:
    """The units so far."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str | None, int], str] = {}
        self._targets: dict[str, tuple[str, str]] = {}

    def findings(self, unit: Unit) -> Iterator[tuple[str, str]]:
        """Whether the unit was there before, or its source with another translation."""
        if unit.identity is not None:
            key = (unit.identity, unit.context, unit.form)
            if (first := self._names.get(key)) is not None:
                yield "duplicate", f"as in {first}"
            self._names.setdefault(key, unit.name)
        # Messages with the same source have contexts because their translations may differ.
        is_message = bool(unit.form) or unit.identity == unit.source
        if not is_message and unit.source.strip() and unit.target.strip():
            name, target = self._targets.setdefault(unit.source, (unit.name, unit.target))
            if target != unit.target:
                yield "inconsistent", f"{name} has {target}"


def _findings(unit: Unit, rules: Rules, longest: int | None) -> Iterator[tuple[str, str]]:
    source, target = unit.source, unit.target
    if not source.strip():
        return
    if not target.strip():
        yield "untranslated", CHECKS["untranslated"]
        return
    if not ACCELERATORS.keys().isdisjoint(rules.names):
        (source, own, _), (target, other, _) = map(rules.without_accelerator, (source, target))
        if own != other:
            yield "accelerators", f"missing {own}" if own else f"added {other}"
    yield from dict.fromkeys(_of_pieces(source, target, rules))
    yield from _layout(source, target)
    if source == target and re.search(r"[^\W\d_]{3,}", _without_spans(source, rules)):
        yield "same", CHECKS["same"]
    doubled = {word.casefold() for word in _DOUBLED.findall(target)}
    doubled -= {word.casefold() for word in _DOUBLED.findall(source)}
    words = sorted(word for word in doubled if not word.isdigit())
    if words:
        yield "doubled-words", " ".join(words)
    if longest is not None and len(target) > longest:
        yield "length", f"{len(target)} characters, more than {longest}"


def _of_pieces(source: str, target: str, rules: Rules) -> Iterator[tuple[str, str]]:
    """The findings of :func:`_spans`; for ICU messages, those in their branches."""
    own, other = (
        Message.parse(text) if "icu" in rules.names else None for text in (source, target)
    )
    pairs = None if own is None or other is None else own.paired(other)
    if pairs is None:
        yield from _spans(source, target, rules)
        return
    for first, second in pairs:
        yield from _spans(first.text, second.text, rules)
        signs = first.count_signs() - second.count_signs()
        if signs:
            yield "placeholders", "missing #" if signs > 0 else "added #"


def _spans(source: str, target: str, rules: Rules) -> Iterator[tuple[str, str]]:
    own, other = find_spans(source, rules.names), find_spans(target, rules.names)
    first, second = _by_check(source, own), _by_check(target, other)
    same = first == second
    for check, missing, added in (
        *((check, first[check] - second[check], second[check] - first[check]) for check in first),
        ("numbers", *_numbers(source, target, rules)),
    ):
        if missing or added:
            parts = [f"missing {' '.join(missing.elements())}"] if missing else []
            parts += [f"added {' '.join(added.elements())}"] if added else []
            yield check, "; ".join(parts)
    if same and _chains(other) < _chains(own):
        yield "tags", CHECKS["tags"]


def _by_check(text: str, spans: Iterable[Span]) -> dict[str, Counter[str]]:
    """The texts of spans by the check that compares them; numbers have their own check."""
    found: dict[str, Counter[str]] = {"placeholders": Counter(), "markup": Counter()}
    for span in spans:
        if not _is_number(text, span):
            check = "markup" if span.rule in ("rest", "markdown") else "placeholders"
            found[check][text[span.start : span.end]] += 1
    return found


def _numbers(source: str, target: str, rules: Rules) -> tuple[Counter[str], Counter[str]]:
    """Numbers outside of other spans, without group separators: missing ones and added ones."""
    names = tuple(name for name in rules.names if name != "number")
    texts = [_without(text, names) for text in (source, target)]
    runs, others = (Counter(_NUMBER.findall(text)) for text in texts)
    if runs == others:  # also "5 100" (two numbers) and "5, 100"
        return Counter(), Counter()
    own, other = (Counter(number for number, *_ in find_grouped(text)) for text in texts)
    return own - other, other - own


def _is_number(text: str, span: Span) -> bool:
    """Whether a span is a number, or a version, which may be a number in the other language."""
    return span.rule == "number" or _VERSION.fullmatch(text, span.start, span.end) is not None


def _without_spans(text: str, rules: Rules) -> str:
    return _without(text, rules.names)


def _without(text: str, names: Sequence[str]) -> str:
    parts, place = [], 0
    for span in find_spans(text, names):
        if "number" not in names and _is_number(text, span):
            continue
        parts.append(text[place : span.start])
        place = span.end
    return "\n".join([*parts, text[place:]])


def _chains(spans: Iterable[Span]) -> int:
    """The number of chains that nest, such as pairs of tags."""
    counts = Counter(span.chain for span in spans)
    return sum(count > 1 for count in counts.values())


def _layout(source: str, target: str) -> Iterator[tuple[str, str]]:
    outer = [
        (text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :])
        for text in (source, target)
    ]
    if outer[0] != outer[1]:
        yield "white-space", CHECKS["white-space"]
    breaks = source.strip().count("\n"), target.strip().count("\n")
    if breaks[0] != breaks[1]:
        yield "line-breaks", f"{breaks[1]} instead of {breaks[0]}"
    ends = final_mark(source), final_mark(target)
    if ends[0] != ends[1]:
        yield "punctuation", f"ends with {ends[1] or 'none'} instead of {ends[0] or 'none'}"
