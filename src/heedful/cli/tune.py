"""``heedful tune``: a recipe's best settings within a budget."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.commands import add_command


@dataclass(frozen=True)
class Tune:
    """Search a recipe's settings by validation; the same command again goes on where it stopped.

    The recipe's [tune] table says what is searched; without one it is the learning rate and
    dropout. The test set is never looked at. The winner is written to best.toml, a recipe.

    Example:

        heedful tune recipe.toml --trials 8 --minutes 20 --data corpora --out tuned
    """

    recipe: Annotated[
        str,
        typer.Argument(help="A TOML recipe, or the name of one that comes with heedful."),
    ]
    out: Annotated[Path, typer.Option("--out", help="The search's folder: made, or gone on with.")]
    trials: Annotated[int, typer.Option("--trials", help="Runs, the recipe itself among them.")] = 4
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            help="A trial's most minutes of computing steps; validating and saving do not count.",
        ),
    ] = None
    seeds: Annotated[
        int, typer.Option("--seeds", help="Train the winner with so many further seeds.")
    ] = 0
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder its relative data paths start from.")
    ] = None
    pruning: Annotated[
        bool,
        typer.Option(
            "--pruning/--no-pruning", help="Give up trials worse than the median at a step."
        ),
    ] = True
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--start-from", help="Begin each trial with this run's weights and vocabulary."
        ),
    ] = None
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting: key=value; may be repeated."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or mps.")] = None
    threads: Annotated[int | None, typer.Option("--threads", help="Processor threads.")] = None
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="auto, float32, bfloat16, or float16 (CUDA)."),
    ] = None


def _run(options: Tune) -> None:
    """Run the command."""
    from heedful.evaluation.tables import draw
    from heedful.runs.recipe import check_recipe, find_recipe, read_recipe, with_overrides
    from heedful.training.tuning import tune as search
    from heedful.training.tuning_record import read_tuning, tables_of

    given = {"device": options.device, "threads": options.threads, "precision": options.precision}
    settings = [f"training.{name}={value}" for name, value in given.items() if value is not None]
    path = find_recipe(options.recipe)
    tables = with_overrides(read_recipe(path), [*(options.overrides or []), *settings])
    if options.start_from is None:
        check_recipe(tables, str(path))
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
