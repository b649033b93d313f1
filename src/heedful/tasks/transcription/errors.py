"""Word and character error rates."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heedful.evaluation.outcome import Figure
from heedful.evaluation.statistics import measure, percentile_interval, resample

_RESAMPLES, _SEED = 1000, 12345


def edit_distance(first: Sequence[Any], second: Sequence[Any]) -> int:
    """The fewest substitutions, insertions and deletions that change one sequence to another.

    Source: Levenshtein 1966, "Binary Codes Capable of Correcting Deletions, Insertions, and
    Reversals"; Wagner, Fischer 1974, "The String-to-String Correction Problem".

    Example:
        >>> edit_distance("kitten", "sitting")
        3
    """
    places = np.arange(len(second) + 1)
    row = places.copy()
    for one in first:
        unequal = np.fromiter((one != other for other in second), np.int64, len(second))
        best = np.minimum(row[1:] + 1, row[:-1] + unequal)
        # Insertions: the least of all places before, plus the distance to them.
        best = np.concatenate([[row[0] + 1], best])
        row = np.minimum.accumulate(best - places) + places
    return int(row[-1])


def measures(outputs: Sequence[str], references: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Figure → how it is computed, for :func:`heedful.evaluation.statistics.measure`.

    Errors are summed over all sounds and divided by the words, or characters, of the references.
    """
    pairs = list(zip(outputs, references, strict=True))
    words = [[edit_distance(a.split(), b.split()), len(b.split())] for a, b in pairs]
    characters = [[edit_distance(a, b), len(b)] for a, b in pairs]
    same = [[float(a == b), 1.0] for a, b in pairs]
    falling = {"kind": "mean", "scale": 100.0, "rises": False}
    return {
        "word error": {**falling, "values": words},
        "character error": {**falling, "values": characters},
        "exact": {"kind": "mean", "scale": 100.0, "values": same},
    }


def error_figures(outputs: Sequence[str], references: Sequence[str]) -> Mapping[str, Figure]:
    """Word and character error rates, and the share of texts without an error, in per cent, with
    95 % intervals of resampled sounds."""
    found: dict[str, Figure] = {}
    for name, how in measures(outputs, references).items():
        statistics = measure(name, how, outputs, references)
        low, high = percentile_interval(resample(statistics, _RESAMPLES, _SEED))
        value = statistics.value_of_sum(statistics.values.sum(0))
        found[name] = Figure(value, "%", how.get("rises", True), low, high)
    return found
