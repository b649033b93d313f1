"""Choose the rules for a corpus: those that find equal spans on both sides."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from heedful.data.protected.adjusting import (
    ACCELERATORS,
    CASE,
    PUNCTUATION,
    final_mark,
    is_capitalised,
    without_accelerator,
)
from heedful.data.protected.rules import LITERAL, NAMES
from heedful.data.protected.spans import find_spans

ALWAYS: tuple[str, ...] = (
    "icu", "tags", "url", "email", "entity", "printf", "brace", "qt", "path", "identifier",
    "number",
)  # fmt: skip
"""Rules that are almost never wrong."""
_SAMPLE = 20_000
_LABEL = 60
"""Maximum number of characters of a label of a menu or button, which may have an accelerator."""
_FINAL = frozenset(":….")
_MANY, _AGREED = 200, 0.95
"""Minimum number of examples, and minimum share of targets that agree with their sources."""
_SHARE = 0.002
"""Minimum share of pairs in which the spans of a rule are equal on both sides."""


def usual_rules(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The rules for a corpus: all safe rules, and rules for markup that both sides have.

    Args:
        pairs: sources and targets; only the first 20,000 are used.
    """
    found: Counter[str] = Counter()
    agreement = _Agreement()
    count = 0
    for source, target in islice(pairs, _SAMPLE):
        count += 1
        agreement.add(source, target)
        for rule in _SOMETIMES:
            own = {source[s.start : s.end] for s in find_spans(source, [rule])}
            if own and own == {target[s.start : s.end] for s in find_spans(target, [rule])}:
                found[rule] += 1
    chosen = {rule for rule in _SOMETIMES if found[rule] > max(1, _SHARE * count)}
    if found["rest"] and found["markdown"]:  # what both understand is the one with more
        chosen.discard("markdown" if found["rest"] >= found["markdown"] else "rest")
    adjustments = agreement.rules(max(1, _SHARE * count))
    return [*(rule for rule in NAMES if rule in chosen or rule in ALWAYS), *adjustments]


class _Agreement:
    """Counts how often targets agree with their sources in what can be adjusted."""

    def __init__(self) -> None:
        self._same: Counter[str] = Counter()
        self._all: Counter[str] = Counter()

    def add(self, source: str, target: str) -> None:
        """Count a pair."""
        for rule, marker in ACCELERATORS.items():
            label = marker in source and len(source) <= _LABEL and "`" not in source
            if label and without_accelerator(source, marker):
                self._count(rule, without_accelerator(target, marker) is not None)
        if source.rstrip()[-1:] in _FINAL or source.rstrip()[-1:].isalnum():
            self._count(PUNCTUATION, final_mark(source) == final_mark(target))
        if is_capitalised(source) and is_capitalised(target) is not None:
            self._count(CASE, is_capitalised(target) is True)

    def _count(self, rule: str, same: bool) -> None:
        self._all[rule] += 1
        self._same[rule] += same

    def rules(self, fewest: float) -> list[str]:
        """The rules of which at least ``fewest`` pairs are examples; one marker at most."""
        same, total = self._same, self._all
        markers = [rule for rule in ACCELERATORS if same[rule] > max(fewest, total[rule] / 2)]
        chosen = [max(markers, key=lambda rule: same[rule])] if markers else []
        for rule in (CASE, PUNCTUATION):
            if total[rule] >= _MANY and same[rule] >= _AGREED * total[rule]:
                chosen.append(rule)
        return chosen


_SOMETIMES = tuple(rule for rule in NAMES if rule not in ALWAYS and rule != LITERAL)
