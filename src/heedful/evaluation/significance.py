"""Significance of the difference between two systems: two paired tests on the same sentences.

Paired bootstrap resampling: Koehn 2004, "Statistical significance tests for machine translation
evaluation". Approximate randomisation: Riezler and Maxwell 2005, "On some pitfalls in automatic
evaluation and significance testing for MT".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from heedful.evaluation.statistics import (
    DEFAULT_SEED,
    METRICS,
    MetricName,
    Statistics,
    check_parallel,
    collect,
    draw_swaps,
    draw_with_replacement,
)

# Differences below this are rounding errors.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Comparison:
    """The comparison of two systems by one metric.

    Attributes:
        first: the score of the first system.
        second: the score of the second system.
        bootstrap_p: how often the difference of a resample exceeds the mean difference of all
            resamples by at least the observed difference. This is sacrebleu's definition, and
            smaller than a two-sided p-value.
        randomisation_p: how often randomly swapping outputs gives a difference at least as large as
            the observed one. For a correlation, the outputs of each system are standardised first.
        better: the better system if *both* p-values are below the level; otherwise None.
    """

    name: str
    first: float
    second: float
    bootstrap_p: float
    randomisation_p: float
    better: Literal["first", "second"] | None

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


def compare_systems(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName] = METRICS,
    tokenise: str = "13a",
    lowercase: bool = False,
    resamples: int = 1000,
    trials: int = 10_000,
    seed: int = DEFAULT_SEED,
    level: float = 0.05,
) -> list[Comparison]:
    """Compare the outputs of two systems for the same sentences.

    Args:
        first: the outputs of the first system.
        second: the outputs of the second system.
        references: the reference translations.
        metrics: some of ``bleu``, ``chrf`` and ``ter``.
        tokenise: sacrebleu's tokeniser for BLEU.
        lowercase: whether to compare in lower case.
        resamples: number of resamples of the bootstrap.
        trials: number of trials of the randomisation.
        seed: of both tests.
        level: the significance level.

    Raises:
        UserError: the numbers differ, or there is nothing to compare.
    """
    check_parallel(first, references)
    check_parallel(second, references)
    found = []
    for name in metrics:
        one = collect(name, first, references, tokenise=tokenise, lowercase=lowercase)
        two = collect(name, second, references, tokenise=tokenise, lowercase=lowercase)
        found.append(
            compare_statistics(one, two, resamples=resamples, trials=trials, seed=seed, level=level)
        )
    return found


def compare_statistics(
    one: Statistics,
    two: Statistics,
    *,
    resamples: int = 1000,
    trials: int = 10_000,
    seed: int = DEFAULT_SEED,
    level: float = 0.05,
) -> Comparison:
    """Compare two systems by statistics of one figure that were collected before."""
    first, second = (each.value_of_sum(each.values.sum(axis=0)) for each in (one, two))
    seen = abs(first - second)
    by_resampling = _bootstrap_p(one, two, seen, resamples, seed)
    by_swapping = _randomisation_p(one, two, seen, trials, seed)
    better: Literal["first", "second"] | None = None
    if max(by_resampling, by_swapping) < level:
        better = "first" if (first > second) == one.rises else "second"
    return Comparison(one.name, first, second, by_resampling, by_swapping, better)


def _bootstrap_p(one: Statistics, two: Statistics, seen: float, resamples: int, seed: int) -> float:
    differences = np.array(
        [
            abs(one.value_of_sum(times @ one.values) - two.value_of_sum(times @ two.values))
            for times in draw_with_replacement(len(one.values), resamples, seed)
        ]
    )
    return _p_value(differences - differences.mean(), seen)


def _randomisation_p(
    one: Statistics, two: Statistics, seen: float, trials: int, seed: int
) -> float:
    of_two = two.values.sum(0)
    total = one.values.sum(0) + of_two
    change = one.values - two.values
    differences = []
    for swaps in draw_swaps(len(one.values), trials, seed):
        for row in of_two + swaps.astype(np.float64) @ change:
            differences.append(abs(one.value_of_sum(row) - two.value_of_sum(total - row)))
    return _p_value(np.array(differences), seen)


def _p_value(differences: NDArray[np.float64], seen: float) -> float:
    """The share at least as large as the observed one, which is included (so never zero)."""
    as_large = int(np.sum(differences >= seen - _TOLERANCE))
    return (as_large + 1) / (len(differences) + 1)
