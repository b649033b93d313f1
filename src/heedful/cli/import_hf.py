"""``heedful import``: models of other libraries as runs."""

from pathlib import Path
from typing import Annotated

import typer

HELP = """Make a run of a model of another library.

Example:

    heedful import hf opus-mt-en-de --out runs/en-de
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Keeps ``hf`` a name of its own, though there is no other yet."""


@app.command(no_args_is_help=True)
def hf(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A folder in the Hugging Face layout: config.json, safetensors, tokeniser.",
            metavar="DIR",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The run's folder, which is made.")],
    pairs: Annotated[
        bool, typer.Option("--pairs", help="A classifier decides on two texts at a time.")
    ] = False,
    ignore_field: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore-field",
            metavar="NAME",
            help="Do not read this field of config.json, which has no effect; repeatable.",
        ),
    ] = None,
) -> None:
    """Make a run of a BERT, a GPT-2 or a Marian model in the Hugging Face layout.

    Only config.json, safetensors and the tokeniser's files are read; nothing is executed, nothing
    downloaded.

    Example:

        heedful import hf opus-mt-en-de --out runs/en-de
    """
    from heedful.interop.importing import import_hf

    run = import_hf(folder, out, pairs=pairs, ignored=ignore_field or [])
    print(f"{run.path}: a run for {run.recipe.task}, from {folder}")


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.add_typer(app, name="import")
