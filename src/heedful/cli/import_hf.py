"""``heedful import``: convert models of other libraries to runs."""

from pathlib import Path
from typing import Annotated

import typer

HELP = """Import a model of another library as a run.

Example:

    heedful import hf opus-mt-en-de --out runs/en-de
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Without a callback, typer would omit the name of the only command, ``hf``."""


@app.command(no_args_is_help=True)
def hf(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A folder in the Hugging Face layout: config.json, safetensors, tokeniser.",
            metavar="DIR",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The new folder of the run.")],
    pairs: Annotated[
        bool, typer.Option("--pairs", help="The classifier reads pairs of texts.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option("--from", help="Source language, in a model of many languages."),
    ] = None,
    target: Annotated[str | None, typer.Option("--to", help="Target language.")] = None,
    ignore_field: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore-field",
            metavar="NAME",
            help="Ignore this field of config.json; repeatable.",
        ),
    ] = None,
) -> None:
    """Import a BERT, GPT-2, Marian, T5, BART, M2M-100 or other model as a run.

    Only config.json, safetensors and the tokeniser's files are read. Nothing is executed or
    downloaded.

    Example:

        heedful import hf opus-mt-en-de --out runs/en-de

        heedful import hf m2m100 --from en --to de --out runs/m2m-en-de
    """
    from heedful.interop.importing import import_hf

    run = import_hf(
        folder,
        out,
        pairs=pairs,
        ignored=ignore_field or [],
        source=source,
        target=target,
    )
    print(f"{run.path}: a run for {run.recipe.task}, from {folder}")


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.add_typer(app, name="import")
