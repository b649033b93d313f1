"""Choose the rules for a corpus: those that find equal spans on both sides."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from heedful.data.protected.rules import LITERAL, NAMES
from heedful.data.protected.spans import find_spans

ALWAYS: tuple[str, ...] = (
    "icu", "tags", "url", "email", "entity", "printf", "brace", "qt", "path", "identifier",
    "number",
)  # fmt: skip
"""Rules that are almost never wrong."""
_SAMPLE = 20_000
_SHARE = 0.002
"""Minimum share of pairs in which the spans of a rule are equal on both sides."""


def usual_rules(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The rules for a corpus: all safe rules, and rules for markup that both sides have.

    Args:
        pairs: sources and targets; only the first 20,000 are used.
    """
    found: Counter[str] = Counter()
    count = 0
    for source, target in islice(pairs, _SAMPLE):
        count += 1
        for rule in _SOMETIMES:
            own = {source[s.start : s.end] for s in find_spans(source, [rule])}
            if own and own == {target[s.start : s.end] for s in find_spans(target, [rule])}:
                found[rule] += 1
    chosen = {rule for rule in _SOMETIMES if found[rule] > max(1, _SHARE * count)}
    if found["rest"] and found["markdown"]:  # what both understand is the one with more
        chosen.discard("markdown" if found["rest"] >= found["markdown"] else "rest")
    return [rule for rule in NAMES if rule in chosen or rule in ALWAYS]


_SOMETIMES = tuple(rule for rule in NAMES if rule not in ALWAYS and rule != LITERAL)
