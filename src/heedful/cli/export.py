"""``heedful export``: convert runs to the formats of other libraries."""

from pathlib import Path
from typing import Annotated

import typer

HELP = """Export a run's model for another library.

Example:

    heedful export ctranslate2 runs/en-de --out en-de-ct2 --quantization int8
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)


@app.command(no_args_is_help=True)
def hf(
    run: Annotated[Path, typer.Argument(help="The run.")],
    out: Annotated[Path, typer.Option("--out", help="The new folder to write.")],
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="best, last, average or a step; default: the run's."),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option("--head", help="Which head to export from a multi-task run."),
    ] = None,
) -> None:
    """Export a run's model and tokeniser for from_pretrained of transformers.

    Example:

        heedful export hf runs/en-de --out en-de-hf
    """
    from heedful.interop.exporting import export_hf

    written = export_hf(run, out, checkpoint=checkpoint, head=head)
    print(f"{written}: for from_pretrained of transformers")


@app.command(no_args_is_help=True)
def ctranslate2(
    run: Annotated[Path, typer.Argument(help="The run of a Transformer.")],
    out: Annotated[Path, typer.Option("--out", help="The new folder to write.")],
    quantization: Annotated[
        str | None,
        typer.Option(
            "--quantization",
            help="Data type of the weights: int8, int8_float32, int16, float16, bfloat16 or "
            "float32; default: float32.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="best, last, average or a step; default: the run's."),
    ] = None,
) -> None:
    """Export a Transformer for CTranslate2, with everything needed to translate text.

    Example:

        heedful export ctranslate2 runs/en-de --out en-de-ct2 --quantization int8
    """
    from heedful.interop.ctranslate2_folders import export_ctranslate2

    written = export_ctranslate2(run, out, quantization=quantization, checkpoint=checkpoint)
    print(f"{written}: for heedful translate --engine ctranslate2, and for CTranslate2")


@app.command(no_args_is_help=True)
def onnx(
    run: Annotated[Path, typer.Argument(help="The run of a BERT or a Transformer.")],
    out: Annotated[Path, typer.Option("--out", help="The new folder to write.")],
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="best, last, average or a step; default: the run's."),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option("--head", help="Which head to export from a multi-task run."),
    ] = None,
) -> None:
    """Export an encoder or a translator as ONNX graphs, which any ONNX runtime computes.

    Example:

        heedful export onnx runs/mood --out mood-onnx
    """
    from heedful.interop.onnx_folders import export_onnx

    written = export_onnx(run, out, checkpoint=checkpoint, head=head)
    print(f"{written}: ONNX graphs, the tokeniser, and onnx.json, which describes them")


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.add_typer(app, name="export")
