"""Neural Turing machines and differentiable neural computers beside LSTM, on their papers' tasks.

    python benchmarks/algorithms.py --out FOLDER [--only ntm-copy …] [--models ntm lstm dnc]
                                    [--minutes 20] [--steps N] [--seed 1]
    python benchmarks/algorithms.py --out FOLDER --report

Graves et al. 2014, section 4, and a graph task after Graves et al. 2016. Trains each recipe with
each of the models and scores it on test examples of the sizes in ``SIZES``. A run is a folder in
FOLDER; rerun the command to resume: nothing is trained or scored twice. ``--minutes`` and
``--steps`` limit each training; the table states the steps that were made.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from heedful.basics.bounded_reading import read_json
from heedful.basics.files import write_json
from heedful.runs.recipe import find_recipe, read_recipe
from heedful.tasks.algorithm.evaluation import AlgorithmEvaluation
from heedful.tasks.spec import Opening, spec_of_run
from heedful.training.train import train
from reporting import machine, said, table

SIZES = {
    "ntm-copy": [10, 20, 30, 50, 120],
    "ntm-repeat-copy": [10, 20],
    "ntm-associative-recall": [6, 10, 20],
    "ntm-n-grams": [200],
    "ntm-priority-sort": [20],
    "dnc-shortest-path": [1, 2, 3, 4],
}
"""Recipe → the sizes that its runs are scored at."""
LSTM = {"kind": "recurrent-sequence", "layers": 3, "hidden_size": 256}
"""The LSTM baseline of Graves et al. 2014, section 4.6."""
KINDS = {"ntm": "neural-turing-machine", "dnc": "differentiable-neural-computer"}
MODELS = ("ntm", "lstm", "dnc")


def recipe_of(name: str, model: str, options: argparse.Namespace) -> dict[str, Any]:
    """The tables of a recipe with another model and the limits of the options."""
    tables = read_recipe(find_recipe(name))
    tables["model"] = LSTM if model == "lstm" else {**tables["model"], "kind": KINDS[model]}
    limits = {"max_steps": options.steps, "max_minutes": options.minutes}
    given = {key: value for key, value in limits.items() if value is not None}
    tables["training"] = {**tables["training"], **given, "threads": options.threads}
    return {**tables, "seed": options.seed}


def result(folder: Path, name: str, model: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train and score one model."""
    run = folder / f"{name}-{model}-{options.seed}"
    path = run.with_suffix(".json")
    if path.exists():
        found: dict[str, Any] = read_json(path)
        return found
    if not train(recipe_of(name, model, options), run):
        sys.exit(130)
    opened, spec = spec_of_run(run)
    score = spec.evaluate(opened, None, AlgorithmEvaluation(SIZES[name]), Opening())
    last = [one for one in opened.metrics() if one["kind"] == "train"][-1]
    made = {
        "recipe": name,
        "model": model,
        "seed": options.seed,
        "steps": last["step"],
        "sizes": SIZES[name],
        "figures": {key: one.value for key, one in score.figures.items()},
        "table": [list(score.tables[0].header), *map(list, score.tables[0].rows)],
        "machine": machine(options.threads),
    }
    write_json(path, made)
    return made


def report(found: Sequence[dict[str, Any]]) -> str:
    """A table for each recipe: wrong bits by size, and bits per sequence at the first size."""
    parts = []
    for name in SIZES:
        own = [one for one in found if one["recipe"] == name]
        if not own:
            continue
        titles = ["", "seed", "steps", *(f"size {size}" for size in SIZES[name])]
        rows = [
            [one["model"], str(one["seed"]), f"{one['steps']:,}", *_cells(one)]
            for one in sorted(own, key=lambda one: (MODELS.index(one["model"]), one["seed"]))
        ]
        parts += [f"{name}: wrong bits (bits per sequence)", "", table(titles, rows), ""]
        least = own[0]["table"][0]
        if "least" in least:
            bound = own[0]["table"][1][least.index("least")]
            parts += [f"Least bits per sequence: {bound}", ""]
    return "\n".join([*parts, said(found[0]["machine"])])


def _cells(one: dict[str, Any]) -> list[str]:
    figures = one["figures"]
    return [
        f"{figures[f'wrong_bits_at_{size}']:.2f} % ({figures[f'bits_at_{size}']:.1f})"
        for size in one["sizes"]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--minutes", type=float, help="limit of each training")
    parser.add_argument("--steps", type=int, help="instead of those of the recipe")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="train nothing")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in () if options.report else options.only:
        for model in options.models:
            result(options.out, name, model, options)
    found = [read_json(path) for path in sorted(options.out.glob("*.json"))]
    if not found:
        print(f"{options.out} has no results", file=sys.stderr)
        return 2
    print(report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
