"""Errors on the 20 bAbI tasks (Weston et al. 2016, version 1.2, 1,000 questions a task).

    python benchmarks/babi.py --data FOLDER --out FOLDER [--recipes babi-memory-network …]
                              [--seeds 1] [--each] [--steps N] [--threads 1]
    python benchmarks/babi.py --data FOLDER --out FOLDER --report

Trains each recipe with each seed on all tasks together, or with ``--each`` one model for each task,
and scores the chosen checkpoint once on the test files. Checkpoints are chosen on a tenth of the
training questions. Each result is written as JSON when it is complete, and is not computed again;
rerun the command to resume a training. The table has the published errors beside ours.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from heedful.basics.bounded_reading import read_json
from heedful.basics.files import write_json
from heedful.runs.recipe import find_recipe, read_recipe
from heedful.tasks.spec import NoOptions, Opening, spec_of_run
from heedful.training.train import train
from reporting import machine, said, table

RECIPES = ("babi-memory-network", "babi-supporting-facts", "babi-story-transformer")
PUBLISHED = {
    "MemN2N, 3 hops, PE LS RN, joint (Sukhbaatar et al. 2015)": [
        *(0, 11.4, 21.9, 13.4, 14.4, 2.8, 18.3, 9.3, 1.9, 6.5, 0.3, 0.1, 0.2, 6.9, 0, 2.7, 40.4),
        *(9.4, 88, 0),
    ],
    "supervised, AM + NG + NL, one model a task (Weston et al. 2016)": [
        *(0, 0, 0, 0, 2, 0, 15, 9, 0, 2, 0, 0, 0, 1, 0, 0, 35, 5, 64, 0),
    ],
}
"""Errors in percent of tasks 1 to 20; the mean of the last one is 6.7."""
EACH_STEPS = 1200
"""Steps of a training on one task."""


def task_files(recipe: dict[str, Any], part: str) -> list[str]:
    """The files of a part, in the order of the tasks."""
    return list(recipe["data"][part])


def result(name: str, seed: int, task: int | None, options: argparse.Namespace) -> dict[str, Any]:
    """Train and score one model: on all tasks, or on one of them, counted from 1."""
    suffix = f"{name}-{seed}" if task is None else f"{name}-each-{seed}-{task}"
    path: Path = options.out / f"{suffix}.json"
    if path.exists():
        found: dict[str, Any] = read_json(path)
        return found
    recipe = read_recipe(find_recipe(name))
    tests = task_files(recipe, "test")
    recipe["seed"] = seed
    recipe["training"] = {**recipe["training"], "threads": options.threads}
    if task is not None:
        train_file, tests = task_files(recipe, "train")[task - 1], [tests[task - 1]]
        recipe["data"] = {**recipe["data"], "train": [train_file], "test": []}
        often = {"validate_every": 100, "checkpoint_every": 100, "warmup_steps": 50}
        recipe["training"] = {**recipe["training"], "max_steps": EACH_STEPS, **often}
    if options.steps is not None:
        recipe["training"]["max_steps"] = options.steps
    run = options.out / suffix
    if not train(recipe, run, data=options.data):
        sys.exit(130)
    opened, spec = spec_of_run(run)
    opening = Opening(device="cpu")
    files = [str(options.data / one) for one in tests]
    accuracies = [
        spec.evaluate(opened, [one], NoOptions(), opening).figures["accuracy"].value
        for one in files
    ]
    made = {
        "recipe": name,
        "seed": seed,
        "task": task,
        "errors": [100 - one for one in accuracies],
        "validation": opened.chosen().state["validation"],
        "steps": opened.chosen().step,
        "machine": machine(options.threads),
    }
    write_json(path, made)
    return made


def rows_of(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[float], list[float]]]:
    """Name, errors of the tasks (of the seed best in validation), and the means of all seeds."""
    for each in (False, True):
        for name in sorted({one["recipe"] for one in found}):
            own = [
                one for one in found if one["recipe"] == name and (one["task"] is not None) == each
            ]
            seeds = sorted({one["seed"] for one in own})
            errors = {seed: _errors([one for one in own if one["seed"] == seed]) for seed in seeds}
            whole = {seed: one for seed, one in errors.items() if len(one) == 20}
            if not whole:
                continue
            accuracy = {
                seed: mean(one["validation"]["accuracy"] for one in own if one["seed"] == seed)
                for seed in whole
            }
            best = max(whole, key=lambda seed: accuracy[seed])
            title = f"{name}{', one model a task' if each else ''}"
            yield title, whole[best], [mean(one) for one in whole.values()]


def _errors(own: Sequence[dict[str, Any]]) -> list[float]:
    if len(own) == 1 and own[0]["task"] is None:
        return list(own[0]["errors"])
    ordered = sorted(own, key=lambda one: one["task"] or 0)
    return [one["errors"][0] for one in ordered]


def report(found: Sequence[dict[str, Any]]) -> str:
    """The errors of the tasks, ours and published."""
    lines = []
    for title, errors, means in rows_of(found):
        spread = f" ± {stdev(means):.1f}" if len(means) > 1 else ""
        each = [f"{one:.1f}" for one in errors]
        lines.append(
            [title, f"{len(means)}", f"{mean(means):.1f}{spread}", f"{mean(errors):.1f}", *each]
        )
    for title, errors in PUBLISHED.items():
        each = [f"{one:g}" for one in errors]
        lines.append([title, "–", "–", f"{mean(errors):.1f}", *each])
    header = ["", "seeds", "mean of seeds", "mean", *map(str, range(1, 21))]
    return "\n".join([table(header, lines), "", said(machine(1))])


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder en of the tasks")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--each", action="store_true", help="one model for each task")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="train nothing")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.report:
        for seed in options.seeds:
            for name in options.recipes:
                for task in range(1, 21) if options.each else [None]:
                    result(name, seed, task, options)
    found = [json.loads(path.read_text(encoding="utf-8")) for path in options.out.glob("*.json")]
    print(report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
