"""Combinations in which every pair of values of two factors occurs at least once."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

Chosen = dict[str, Any]


def pairwise(factors: Mapping[str, Sequence[Any]]) -> list[Chosen]:
    """A small covering set, built greedily; its values are chosen by their index."""
    names = sorted(factors, key=lambda name: -len(factors[name]))
    left = {
        (one, i, other, j)
        for one, other in itertools.combinations(names, 2)
        for i in range(len(factors[one]))
        for j in range(len(factors[other]))
    }
    found: list[Chosen] = []
    while left:
        row: dict[str, int] = {}
        first = min(left)
        row[first[0]], row[first[2]] = first[1], first[3]
        for name in names:
            if name not in row:
                row[name] = max(
                    range(len(factors[name])),
                    key=lambda value: _covered(left, names, {**row, name: value}, name),
                )
        left -= {
            (one, row[one], other, row[other]) for one, other in itertools.combinations(names, 2)
        }
        found.append({name: factors[name][index] for name, index in row.items()})
    return found


def _covered(
    left: set[tuple[str, int, str, int]], names: Sequence[str], row: dict[str, int], new: str
) -> int:
    """The number of missing pairs that the value of ``new`` adds."""
    return sum(
        (one, row[one], other, row[other]) in left
        for one, other in itertools.combinations(names, 2)
        if new in (one, other) and one in row and other in row
    )
