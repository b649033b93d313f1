"""Figures on the test set: intervals, paired tests and lengths, over examples and over seeds.

The statistics of an example are summed over the seeds of a variant, so that resampling moves all
outputs for an example together: they are not independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.data.readers.data_uris import without_data
from heedful.evaluation.breakdown import rows_by_length
from heedful.evaluation.significance import compare_statistics
from heedful.evaluation.statistics import (
    DEFAULT_SEED,
    Statistics,
    measure,
    percentile_interval,
    resample,
)
from heedful.evaluation.student import paired_p, t_interval

Values = dict[str, Any]

_RESAMPLES = 1000
_TRIALS = 2000
"""Of the randomisation test, whose p-value is at least 1 / (trials + 1)."""


@dataclass(frozen=True)
class _Summed:
    """The statistics of several seeds, summed for each example."""

    first: Statistics
    values: NDArray[np.float64]

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def rises(self) -> bool:
        return self.first.rises

    def value_of_sum(self, total: NDArray[np.float64]) -> float:
        return self.first.value_of_sum(total)


def figures_of(runs: Sequence[Values]) -> dict[str, Values]:
    """The test figures: means over seeds with intervals; those of one seed over examples."""
    found: dict[str, Values] = {}
    runs = [run for run in runs if run["test"]]
    for name in runs[0]["test"] if runs else ():
        values = [run["test"][name] for run in runs if name in run["test"]]
        interval, over = t_interval(values), "seeds"
        if interval is None and (statistics := _summed(runs, name)) is not None:
            interval = percentile_interval(resample(statistics, _RESAMPLES, DEFAULT_SEED))
            over = "examples"
        figure = runs[0]["_test"]["figures"][name]
        found[name] = {
            "value": mean(values),
            "low": interval[0] if interval else None,
            "high": interval[1] if interval else None,
            "interval": over if interval else None,
            "values": values,
            "unit": figure["unit"],
            "higher_is_better": figure["rises"],
        }
    return found


def compare_runs(baseline: Sequence[Values], runs: Sequence[Values]) -> list[Values]:
    """Paired tests of a variant against the baseline, for each test figure.

    ``seeds_p`` is the paired t test over the seeds that both have. ``bootstrap_p`` and
    ``randomisation_p`` resample examples; they are None if the test examples differ.
    """
    baseline, runs = ([run for run in some if run["test"]] for some in (baseline, runs))
    seeds = {run["seed"] for run in baseline} & {run["seed"] for run in runs}
    first = [run for run in baseline if run["seed"] in seeds]
    second = [run for run in runs if run["seed"] in seeds]
    if not seeds:
        return []
    found = []
    for name in [name for name in first[0]["test"] if name in second[0]["test"]]:
        before = [run["test"][name] for run in first]
        after = [run["test"][name] for run in second]
        differences = [b - a for a, b in zip(before, after, strict=True)]
        interval = t_interval(differences)
        compared = {
            "figure": name,
            "difference": mean(differences),
            "low": interval[0] if interval else None,
            "high": interval[1] if interval else None,
            "seeds_p": paired_p(before, after),
            "bootstrap_p": None,
            "randomisation_p": None,
        }
        one, two = _summed(first, name), _summed(second, name)
        if one is not None and two is not None and _inputs(first[0]) == _inputs(second[0]):
            tested = compare_statistics(one, two, resamples=_RESAMPLES, trials=_TRIALS)
            compared |= {
                "bootstrap_p": tested.bootstrap_p,
                "randomisation_p": tested.randomisation_p,
            }
        found.append(compared)
    return found


def _inputs(run: Values) -> Any:
    examples = (run["_test"] or {}).get("examples")
    return None if examples is None else (examples["inputs"], examples["references"])


def _statistics(run: Values, name: str) -> Statistics | None:
    examples = (run["_test"] or {}).get("examples")
    if examples is None or name not in examples["measures"]:
        return None
    known: dict[str, Statistics] = run.setdefault("_statistics", {})
    if name not in known:
        how = examples["measures"][name]
        known[name] = measure(name, how, examples["outputs"], examples["references"])
    return known[name]


def _summed(runs: Sequence[Values], name: str) -> _Summed | None:
    """The statistics of a figure, summed over seeds.

    None if a run has no examples, or if they are not equally many.
    """
    found = [one for run in runs if (one := _statistics(run, name)) is not None]
    if not found or len(found) < len(runs) or len({one.values.shape for one in found}) > 1:
        return None
    return _Summed(found[0], np.sum([one.values for one in found], axis=0))


def lengths_of(runs: Sequence[Values]) -> list[Values]:
    """Each figure by the length of the input, over all seeds; intervals are over examples."""
    runs = [run for run in runs if run["test"]]
    if not runs:
        return []
    examples = (runs[0]["_test"] or {}).get("examples")
    if examples is None or any(_inputs(run) != _inputs(runs[0]) for run in runs):
        return []  # examples that are drawn for each seed have other lengths
    if any(without_data(one) != one for one in examples["inputs"][:1]):
        return []  # images and sounds
    measured = {name: _summed(runs, name) for name in examples["measures"]}
    found = []
    for bucket in rows_by_length(examples["inputs"]):
        figures = {
            name: _Summed(each.first, each.values[bucket.rows])
            for name, each in measured.items()
            if each is not None
        }
        found.append(
            {
                "shortest": bucket.shortest,
                "longest": bucket.longest,
                "unit": bucket.unit,
                "count": len(bucket.rows),
                "figures": {
                    name: each.value_of_sum(each.values.sum(axis=0))
                    for name, each in figures.items()
                },
                "intervals": {
                    name: percentile_interval(resample(each, _RESAMPLES, DEFAULT_SEED))
                    for name, each in figures.items()
                },
            }
        )
    return found
