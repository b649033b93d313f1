"""The parts of a source and its translation that a finding of the checks is about."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from heedful.data.protected.numbers import find_grouped
from heedful.data.protected.pairs import Rules
from heedful.data.protected.spans import Span, find_spans

Range = tuple[int, int]
"""Start and end in characters."""
_DOUBLED = re.compile(r"\b(\w+)\s+\1\b", re.IGNORECASE)
_LAST = re.compile(r"[^\w\s](?=\s*\Z)")


class Concerned(NamedTuple):
    """The parts that a finding is about, from left to right.

    Attributes:
        source: parts of the source.
        target: parts of the translation.
    """

    source: Sequence[Range] = ()
    target: Sequence[Range] = ()


def concerned(check: str, source: str, target: str, rules: Rules) -> Concerned:
    """The parts of a source and its translation that a finding is about.

    Args:
        check: one of :data:`heedful.evaluation.checks.CHECKS`; some of them concern no parts.
        source: the source.
        target: the translation.
        rules: the spans that a translation must keep.

    Example:
        >>> concerned("placeholders", "Open %s", "Öffne %d", Rules(("printf",)))
        Concerned(source=[(5, 7)], target=[(6, 8)])
    """
    if check in ("placeholders", "markup", "tags"):
        own, other = (_spans(text, check, rules) for text in (source, target))
        if check == "tags":
            return Concerned(own, other)
        return _different(
            [(source[start:end], start, end) for start, end in own],
            [(target[start:end], start, end) for start, end in other],
        )
    if check == "numbers":
        return _different(_numbers(source, rules), _numbers(target, rules))
    if check == "doubled-words":
        return Concerned((), [found.span() for found in _DOUBLED.finditer(target)])
    if check == "punctuation":
        ends = [[found.span() for found in _LAST.finditer(text)] for text in (source, target)]
        return Concerned(*ends)
    return Concerned()


def _spans(text: str, check: str, rules: Rules) -> list[Range]:
    kinds = {"markup": ("rest", "markdown"), "tags": ("tags",)}
    spans: Iterable[Span] = (one for one in find_spans(text, rules.names) if one.rule != "number")
    if check in kinds:
        spans = (one for one in spans if one.rule in kinds[check])
    else:
        spans = (one for one in spans if one.rule not in kinds["markup"])
    return [(one.start, one.end) for one in spans]


def _numbers(text: str, rules: Rules) -> list[tuple[str, int, int]]:
    """Numbers outside of other spans."""
    names = [name for name in rules.names if name != "number"]
    taken = [False] * len(text)
    for span in find_spans(text, names):
        taken[span.start : span.end] = [True] * (span.end - span.start)
    return [found for found in find_grouped(text) if not taken[found[1]]]


def _different(
    own: Sequence[tuple[str, int, int]], other: Sequence[tuple[str, int, int]]
) -> Concerned:
    """The parts of each side that the other side has less often; a part is (key, start, end)."""
    first, second = (Counter(key for key, *_ in side) for side in (own, other))
    missing, added = first - second, second - first
    return Concerned(
        [(start, end) for key, start, end in own if key in missing],
        [(start, end) for key, start, end in other if key in added],
    )
