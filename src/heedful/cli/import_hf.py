"""``heedful import``: models of other libraries as runs."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Make a run of a model of another library.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _group() -> None:
    """Make a run of a model of another library.

    Example:

        heedful import hf opus-mt-en-de --out runs/en-de
    """


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
) -> None:
    """Make a run of a BERT, a GPT-2 or a Marian model in the Hugging Face layout.

    Only config.json, safetensors and the tokeniser's files are read; nothing is executed, nothing
    downloaded.

    Example:

        heedful import hf opus-mt-en-de --out runs/en-de
    """
    from heedful.interop.importing import import_hf

    run = import_hf(folder, out)
    print(f"{run.path}: a run for {run.recipe.task}, from {folder}")


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.add_typer(app, name="import")
