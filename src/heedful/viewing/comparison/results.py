"""The results of a comparison as data: the content of ``report.json``."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from heedful.basics.bounded_reading import read_json, read_json_lines
from heedful.basics.errors import UserError
from heedful.data.readers.data_uris import without_data
from heedful.evaluation.student import t_interval
from heedful.runs.model_size import count_parameters
from heedful.runs.opening import open_run
from heedful.runs.registry import kind_of
from heedful.runs.run import Run
from heedful.tasks.scoring import TEST, OtherTest
from heedful.training.comparing import estimate
from heedful.training.comparison_record import Comparison, Training, read_comparison
from heedful.training.cost import Point, cost_to, loss_curve
from heedful.viewing.comparison.paired import compare_runs, figures_of, lengths_of

FORMAT = 1
Values = dict[str, Any]

_SENTENCES = 6
"""Inputs whose outputs are shown side by side."""
_LONGEST_TEXT = 400


def results_of(folder: Path, other: OtherTest | None = None) -> Values:
    """All results of a comparison, of the trainings that are complete.

    Args:
        folder: the comparison's folder.
        other: test data whose scores are reported instead of those of the runs' own.

    Raises:
        UserError: the folder is not a comparison, or a file is damaged.
    """
    found = read_comparison(folder)
    if found is None:
        raise UserError(f"{folder} is not a comparison: it has no comparison.json")
    runs = {
        variant.name: [
            _run(folder, each, found.compared_by, other)
            for each in found.wanted
            if each.variant == variant.name and each.state == "complete"
        ]
        for variant in found.variants
    }
    whole = {name: own for name, own in runs.items() if own}
    baseline = whole.get(found.baseline, [])
    variants = []
    for variant in found.variants:
        own = runs[variant.name]
        variants.append(
            {
                "name": variant.name,
                "folder": variant.folder,
                "settings": variant.settings,
                "runs": [_public(run) for run in own],
                **(_summary(own, baseline) if own else {}),
            }
        )
    _add_costs(variants, found.baseline)
    return {
        "format": FORMAT,
        "version": version("heedful"),
        "machine": _machine(),
        "recipe": found.recipe,
        "task": found.task,
        "budget": found.budget,
        "compared_by": found.compared_by,
        "test_data": None if other is None else other.hashes(),
        "is_tested": any(run["_is_tested"] for own in whole.values() for run in own),
        "higher_is_better": found.higher,
        "baseline": found.baseline,
        "seeds": found.seeds,
        "variants": variants,
        "refused": [{"name": one.name, "reason": one.reason} for one in found.refused],
        **_unfinished(found),
        "sentences": _sentences(whole),
    }


def _machine() -> Values:
    return {
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _unfinished(found: Comparison) -> Values:
    failed = [each for each in found.wanted if each.state == "failed"]
    left = [each for each in found.wanted if not each.ended]
    return {
        "failed": [{"variant": e.variant, "seed": e.seed, "error": e.error} for e in failed],
        "unfinished": [{"variant": each.variant, "seed": each.seed} for each in left],
        "seconds_left": estimate(found) if left else None,
    }


def _run(folder: Path, training: Training, by: str, other: OtherTest | None) -> Values:
    """The results of one run; keys with a leading underscore are not part of the report."""
    path = folder / training.folder
    run = open_run(path)
    result = run.result or {}
    records = list(run.metrics())
    last = [record for record in records if record["kind"] == "train"][-1:]
    spent: Mapping[str, Any] = last[0] if last else {}
    scores = (folder if other is None else other.folder) / training.folder / TEST
    test = read_json(scores) if scores.exists() else None
    minutes, tokens = spent.get("seconds", 0.0) / 60, spent.get("tokens", 0)
    return {
        "seed": training.seed,
        "folder": training.folder,
        "steps": result.get("step"),
        "checkpoint": result.get("chosen"),
        "minutes": minutes,
        "operations": spent.get("operations", 0.0),
        "tokens": tokens,
        "tokens_per_second": tokens / (60 * minutes) if minutes else None,
        "validation": result.get("validation", {}),
        "test": {n: each["value"] for n, each in test["figures"].items()} if test else {},
        "curve": [point._asdict() for point in loss_curve(records, by)],
        "parameters": _parameters(run),
        "_test": test,
        "_is_tested": other is not None or run.recipe.is_tested,
        "_samples": _samples(run),
    }


def _parameters(run: Run) -> int:
    return count_parameters(kind_of(run.recipe).outline_model(run))


def _samples(run: Run) -> list[Values]:
    """The samples of the last validation."""
    found = list(read_json_lines(run.path / "samples.jsonl", growing=True))
    last = max((each["step"] for each in found), default=0)
    return [each for each in found if each["step"] == last]


def _public(run: Values) -> Values:
    return {key: value for key, value in run.items() if not key.startswith("_")}


def _summary(runs: Sequence[Values], baseline: Sequence[Values]) -> Values:
    """The means over the seeds of a variant, and what compares it with the baseline."""
    names = [name for name in runs[0]["validation"] if all(name in r["validation"] for r in runs)]
    return {
        "parameters": runs[0]["parameters"],
        "cost": {
            key: mean(run[key] or 0 for run in runs)
            for key in ("steps", "minutes", "operations", "tokens_per_second")
        },
        "validation": {name: _mean([run["validation"][name] for run in runs]) for name in names},
        "test": figures_of(runs),
        "against_baseline": [] if runs is baseline else compare_runs(baseline, runs),
        "by_length": lengths_of(runs),
        "attention": _attention(runs),
        "curve": _mean_curve(runs),
    }


def _mean(values: Sequence[float]) -> Values:
    interval = t_interval(values)
    return {
        "value": mean(values),
        "low": interval[0] if interval else None,
        "high": interval[1] if interval else None,
        "interval": "seeds" if interval else None,
        "values": list(values),
    }


def _attention(runs: Sequence[Values]) -> list[Values]:
    """For each attention module, the means over heads and seeds."""
    heads = [head for run in runs for head in (run["_test"] or {}).get("attention", [])]
    found = []
    for module in dict.fromkeys(head["module"] for head in heads):
        own = [head for head in heads if head["module"] == module]
        means = {}
        for key, value in own[0].items():
            numbers = [head[key] for head in own if head[key] is not None]
            if value is None or isinstance(value, float):
                means[key] = mean(numbers) if numbers else None
        axes = {key: own[0][key] for key in ("query_axis", "key_axis")}
        count = len({head["head"] for head in own})
        found.append({"module": module, **axes, "heads": count, **means})
    return found


def _mean_curve(runs: Sequence[Values]) -> list[Values]:
    """The mean over seeds of the validations that all of them have, by step."""
    curves = [{point["step"]: point for point in run["curve"]} for run in runs]
    steps = [step for step in curves[0] if all(step in curve for curve in curves)]
    return [
        {key: _mean_of([curve[step][key] for curve in curves]) for key in Point._fields}
        for step in steps
    ]


def _mean_of(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return mean(there) if len(there) == len(values) else None


def _add_costs(variants: Sequence[Values], baseline: str) -> None:
    """Add what each variant spent until it reached the baseline's final validation loss."""
    curves = {
        each["name"]: [Point(**point) for point in each.get("curve", [])] for each in variants
    }
    points = curves.get(baseline)
    level = points[-1].loss if points else None
    if level is None:
        return
    for variant in variants:
        if not curves[variant["name"]]:
            continue
        spent = cost_to(level, curves[variant["name"]])
        variant["cost_to_baseline_loss"] = {
            "loss": level,
            "spent": None if spent is None else spent._asdict(),
        }


def _sentences(runs: Mapping[str, Sequence[Values]]) -> list[Values]:
    """Inputs with the outputs of all variants: of the first seed, on which they differ most."""
    examples: dict[str, Values] = {
        name: test["examples"]
        for name, own in runs.items()
        if (test := own[0]["_test"]) is not None and test["examples"] is not None
    }
    if examples and len(examples) == len(runs):
        columns = {
            name: [*zip(each["inputs"], each["references"], each["outputs"], strict=True)]
            for name, each in examples.items()
        }
    else:
        columns = {
            name: [(one["source"], one["reference"], one["output"]) for one in own[0]["_samples"]]
            for name, own in runs.items()
        }
    inputs = [[row[:2] for row in rows] for rows in columns.values()]
    if not inputs or any(each != inputs[0] for each in inputs):
        return []
    return _chosen(
        [
            (source, reference, {name: rows[place][2] for name, rows in columns.items()})
            for place, (source, reference) in enumerate(inputs[0])
        ]
    )


def _shown(source: str, number: int) -> str:
    """An input as text; of an image or a sound, only which one it is."""
    text = without_data(source)
    return text if text == source else f"example {number}: {text}"


def _chosen(rows: Sequence[tuple[str, str, dict[str, str]]]) -> list[Values]:
    """The rows with the most different outputs; of those, evenly spread over the test set."""
    most = max((len(set(outputs.values())) for _, _, outputs in rows), default=0)
    numbered = [(_shown(row[0], number), *row[1:]) for number, row in enumerate(rows, start=1)]
    differing = [row for row in numbered if len(set(row[2].values())) == most]
    every = max(1, len(differing) // _SENTENCES)
    return [
        {
            "input": source[:_LONGEST_TEXT],
            "reference": reference[:_LONGEST_TEXT],
            "outputs": {name: text[:_LONGEST_TEXT] for name, text in outputs.items()},
        }
        for source, reference, outputs in differing[::every][:_SENTENCES]
    ]
