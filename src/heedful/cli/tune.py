"""``heedful tune``: search for the best settings of a recipe within a budget."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.commands import (
    DataFolder,
    Overrides,
    TrainingDevice,
    TrainingPrecision,
    add_command,
    changed_recipe,
)
from heedful.tasks.options import Threads


@dataclass(frozen=True)
class Tune:
    """Search for the best settings on the validation data; rerun the command to resume.

    The recipe's [tune] table defines the search space; default: the learning rate and dropout. The
    test set is never used. The best recipe is written to best.toml.

    Example:

        heedful tune recipe.toml --trials 8 --minutes 20 --data corpora --out tuned
    """

    recipe: Annotated[
        str,
        typer.Argument(help="A TOML recipe, or the name of a built-in recipe."),
    ]
    out: Annotated[Path, typer.Option("--out", help="The search's folder; resumed if unfinished.")]
    trials: Annotated[
        int, typer.Option("--trials", help="Number of trials, including the recipe itself.")
    ] = 4
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            help="Maximum training minutes per trial, without validating and saving.",
        ),
    ] = None
    seeds: Annotated[
        int, typer.Option("--seeds", help="Train the best trial with this many more seeds.")
    ] = 0
    data: DataFolder = None
    pruning: Annotated[
        bool,
        typer.Option(
            "--pruning/--no-pruning", help="Stop trials worse than the median at the same step."
        ),
    ] = True
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--start-from", help="Start each trial from this run's weights and vocabulary."
        ),
    ] = None
    overrides: Overrides = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    device: TrainingDevice = None
    threads: Threads = None
    precision: TrainingPrecision = None


def _run(options: Tune) -> None:
    """Run the command."""
    from heedful.evaluation.tables import draw
    from heedful.runs.recipe import check_recipe
    from heedful.training.process_environment import require_single
    from heedful.training.tuning import tune as search
    from heedful.training.tuning_record import read_tuning, tables_of

    require_single("tune")
    where, tables = changed_recipe(options)
    if options.start_from is None:
        check_recipe(tables, where)
    finished = search(
        tables,
        options.out,
        trials=options.trials,
        minutes=options.minutes,
        seeds=options.seeds,
        data=options.data,
        pruning=options.pruning,
        start_from=options.start_from,
    )
    found = read_tuning(options.out)
    if found is not None:
        if options.as_json:
            print(json.dumps(found.as_json(), ensure_ascii=False, indent=1))
        else:
            draw(tables_of(found))
    if not finished:
        raise typer.Exit(130)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "tune", Tune, _run)
