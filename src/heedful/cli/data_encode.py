"""``heedful data encode``: encode a corpus once, for any number of runs."""

from pathlib import Path
from typing import Annotated

import typer

from heedful.basics.errors import UserError

HELP = """Encode the corpus of a recipe in several processes; rerun the command to resume.

The result is a folder with the vocabulary, the held-out examples and the encoded examples. Train
with it: heedful train RECIPE --data STORE --out RUN. It may be copied to an object store, and
--data may then be its URL. Pairs of texts and plain texts are encoded in several processes;
labelled examples, images and sounds in one.

Examples:

    heedful data encode recipe.toml --data corpus --out encoded --processes 8

    heedful train recipe.toml --data encoded --out runs/base
"""


def encode(
    recipe: Annotated[
        str,
        typer.Argument(help="A TOML recipe, or the name of a built-in recipe.", metavar="RECIPE"),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="The folder to write; an unfinished one is resumed.")
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The base folder of the recipe's relative data paths."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            help="Number of processes; default: one per processor, at most 16.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting: key=value; repeatable."),
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option("--start-from", help="Encode with the vocabulary of this run."),
    ] = None,
) -> None:
    from heedful.data.parallel_encoding import MOST_PROCESSES, PROCESSES
    from heedful.runs.recipe import check_recipe, tables_of, with_overrides
    from heedful.runs.registry import kind_of
    from heedful.training.train import prepare
    from heedful.training.warm_start import find_start, with_start

    if processes is not None and not 1 <= processes <= MOST_PROCESSES:
        raise UserError(f"--processes {processes}: give a number from 1 to {MOST_PROCESSES:,}")
    tables, where = tables_of(recipe)
    tables = with_start(with_overrides(tables, overrides or []), find_start(out, start_from))
    checked = check_recipe(tables, where)
    before = PROCESSES.set(processes)
    try:
        run = prepare(checked, out, data=data, start_from=start_from)
    finally:
        PROCESSES.reset(before)
    for name, value in kind_of(run.recipe).describe({**run.facts, "run": str(out)}):
        print(f"{name.replace('trained on', 'encoded'):12} {value}")
