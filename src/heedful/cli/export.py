"""``heedful export``: runs as models of other libraries."""

from pathlib import Path
from typing import Annotated

import typer

HELP = """Write a run's model as another library reads it.

Example:

    heedful export ctranslate2 runs/en-de --out en-de-ct2 --quantization int8
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)


@app.command(no_args_is_help=True)
def hf(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write, which is made.")],
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="best, last, average or a step; the run's own choice."),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option("--head", help="Which head goes along, of a run that learnt several things."),
    ] = None,
) -> None:
    """Write a run's model and tokeniser so that transformers loads them with from_pretrained.

    Example:

        heedful export hf runs/en-de --out en-de-hf
    """
    from heedful.interop.exporting import export_hf

    written = export_hf(run, out, checkpoint=checkpoint, head=head)
    print(f"{written}: for from_pretrained of transformers")


@app.command(no_args_is_help=True)
def ctranslate2(
    run: Annotated[Path, typer.Argument(help="The folder of a Transformer's run.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write, which is made.")],
    quantization: Annotated[
        str | None,
        typer.Option(
            "--quantization",
            help="How weights are kept: int8, int8_float32, int16, float16, bfloat16; float32.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="best, last, average or a step; the run's own choice."),
    ] = None,
) -> None:
    """Write a Transformer as CTranslate2 reads it, with all that translates text.

    Example:

        heedful export ctranslate2 runs/en-de --out en-de-ct2 --quantization int8
    """
    from heedful.interop.ctranslate2_folders import export_ctranslate2

    written = export_ctranslate2(run, out, quantization=quantization, checkpoint=checkpoint)
    print(f"{written}: for heedful translate --engine ctranslate2, and for CTranslate2")


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.add_typer(app, name="export")
