"""The results tables of single-text models: ``python benchmarks/text_results.py …``.

    python benchmarks/text_results.py --data FOLDER --out FOLDER [--only ROW …] [--threads 1]

Each row of ``text_results.toml`` is a search with ``heedful tune``. Its best run and further seeds
are then scored once on the test set; a row with ``folds`` searches without one fold and trains the
best settings on each fold. All results are kept in ``--out``: rerun the command to resume; runs are
not scored twice. ``--collect`` only writes the tables of the finished rows.
"""

import argparse
import json
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import folds
from heedful.basics.errors import UserError
from heedful.basics.files import write_json, write_text
from heedful.evaluation.classification import spread
from heedful.runs.opening import open_run
from heedful.runs.recipe import find_recipe, read_recipe, with_overrides
from heedful.tasks.texts.evaluation import score_text_run
from heedful.tasks.texts.evaluation_options import TextEvaluation
from heedful.tasks.texts.run import TextRun
from heedful.training.train import train
from heedful.training.tuning import tune
from reporting import machine, said, table

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    """A row: a recipe and its training budget."""

    key: str
    name: str
    recipe: str
    data: str
    trials: int = 4
    seeds: int = 2
    minutes: float | None = None
    start: str | None = None
    """The row whose best run initialises the weights."""
    folds: int = 0
    """The number of folds to train in ten-fold cross-validation of the recipe's ``train`` file."""
    figures: list[str] = field(default_factory=lambda: ["accuracy"])
    settings: list[str] = field(default_factory=list)


def read_rows(path: Path) -> list[Row]:
    """The rows of a table file.

    Raises:
        UserError: a row has an unknown key or lacks one.
    """
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = []
    for key, values in tables["rows"].items():
        try:
            rows.append(Row(key=key, **{**tables.get("budget", {}), **values}))
        except TypeError as error:
            raise UserError(f"{path}: row {key}: {error}") from error
    return rows


def make_row(row: Row, rows: dict[str, Row], options: argparse.Namespace) -> bool:
    """Search, then score the best run and its further seeds. Skips what is done.

    Returns:
        False if it was interrupted.
    """
    out, data, place = options.out, options.data / row.data, options.out / row.key
    begin = None if row.start is None else winner(out, rows[row.start])
    if row.folds:
        data = out / "data" / row.key
        folds.make(options.data / row.data, row.recipe, data)
    threads = f"training.threads={options.threads}"
    tables = with_overrides(read_recipe(find_recipe(row.recipe)), [*row.settings, threads])
    budget: dict[str, Any] = {"trials": row.trials, "minutes": row.minutes, "data": data}
    budget["seeds"] = 0 if row.folds else row.seeds
    if not tune(fold_of(tables, 0) if row.folds else tables, place, start_from=begin, **budget):
        return False
    best = read_recipe(place / "best.toml")
    for number in range(row.folds):
        run = place / f"fold-{number}"
        if not train(fold_of(best, number), run, data=data, start_from=begin):
            return False
    for run in runs_of(place, row):
        score(run)
    return True


def fold_of(tables: dict[str, Any], number: int) -> dict[str, Any]:
    """The recipe for a fold."""
    files = {"train": f"fold-{number}.train", "test": f"fold-{number}.test"}
    return {**tables, "data": {**tables["data"], **files}}


def winner(out: Path, row: Row) -> Path:
    """The best run of a row."""
    found = json.loads((out / row.key / "tuning.json").read_text(encoding="utf-8"))
    return out / row.key / str(found["trials"][found["winner"]]["folder"])


def runs_of(place: Path, row: Row) -> list[Path]:
    """The best run and its further seeds, or the folds; empty before the search has finished."""
    if row.folds:
        return [place / f"fold-{number}" for number in range(row.folds)]
    path = place / "tuning.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"winner": None}
    if found["winner"] is None:
        return []
    trials = [found["trials"][found["winner"]], *found["further"][: row.seeds]]
    return [place / str(trial["folder"]) for trial in trials]


def score(path: Path) -> None:
    """Score a run on its test set, unless it has been scored."""
    if (path / "test.json").exists():
        return
    run = open_run(path)
    if not isinstance(run, TextRun):
        raise UserError(f"{path} is not a run for single texts")
    scores = {
        one.name: dict(one.details)
        for one in score_text_run(run, options=TextEvaluation(sentences=0))
    }
    write_json(path / "test.json", {"scores": scores})


def collect(rows: list[Row], out: Path) -> list[dict[str, Any]]:
    """The finished results of each row."""
    found = []
    for row in rows:
        place = out / row.key
        runs = runs_of(place, row)
        scored = [run / "test.json" for run in runs if (run / "test.json").exists()]
        if not scored:
            continue
        scores = [json.loads(path.read_text(encoding="utf-8"))["scores"] for path in scored]
        tuning = json.loads((place / "tuning.json").read_text(encoding="utf-8"))
        best = tuning["trials"][tuning["winner"]]
        for head in scores[0]:
            values = {
                figure: [float(own[head][figure]) for own in scores]
                for figure in row.figures
                if figure in scores[0][head]
            }
            found.append(
                {
                    "key": row.key,
                    "name": row.name if len(scores[0]) == 1 else f"{row.name}: {head}",
                    "runs": len(scored),
                    "wanted": row.folds or 1 + row.seeds,
                    "figures": values,
                    "settings": best["settings"],
                    "minutes": best["minutes"],
                    "parameters": tuning.get("parameters"),
                    "validation": best["validation"],
                }
            )
    return found


def markdown(found: list[dict[str, Any]]) -> str:
    """The tables of the finished results."""
    titles = ["what", "figure", "mean of runs", "spread (s)", "runs", "parameters", "minutes"]
    cells = []
    for row in found:
        for figure, values in row["figures"].items():
            share = all(0 <= value <= 1 for value in values) and figure != "loss"
            scaled = [100 * value for value in values] if share else values
            got = spread(scaled)
            cells.append(
                [
                    row["name"],
                    figure.replace("_", " "),
                    f"{got.mean:.2f}",
                    f"{got.deviation:.2f}" if len(values) > 1 else "one run",
                    f"{row['runs']} of {row['wanted']}",
                    f"{row['parameters']:,}" if row["parameters"] else "",
                    f"{row['minutes']:.1f}",
                ]
            )
    return table(titles, cells)


def main(arguments: list[str] | None = None) -> int:
    """Run the selected rows, then collect the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--table", type=Path, default=HERE / "text_results.toml")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--collect", action="store_true", help="Train nothing.")
    options = parser.parse_args(arguments)
    try:
        rows = read_rows(options.table)
        by_key = {row.key: row for row in rows}
        unknown = [name for name in options.only or [] if name not in by_key]
        if unknown:
            raise UserError(f"--only {unknown[0]}: unknown row; choose from {', '.join(by_key)}")
        for row in rows:
            if options.collect or (options.only and row.key not in options.only):
                continue
            print(f"== {row.name}: {row.recipe}", file=sys.stderr, flush=True)
            if not make_row(row, by_key, options):
                return 130
    except UserError as error:
        print(f"text_results: {error}", file=sys.stderr)
        return 2
    found = collect(rows, options.out)
    write_json(options.out / "text_results.json", found)
    text = f"Machine: {said(machine(options.threads))}.\n\n{markdown(found)}\n"
    write_text(options.out / "text_results.md", text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
