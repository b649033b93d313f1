"""``heedful translate``: text, or a document with empty targets, through one or several runs."""

from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.tasks.options import (
    Checkpoint,
    Device,
    Engine,
    Quantization,
    SearchPrecision,
    Threads,
    use_threads,
)

if TYPE_CHECKING:
    from heedful.data.documents import Document
    from heedful.inference.translator import Translator
    from heedful.inference.windowed import Advance


class Format(StrEnum):
    """What the input is."""

    AUTO = "auto"
    LINES = "lines"
    TSV = "tsv"
    PO = "po"
    XLIFF = "xliff"
    TMX = "tmx"


def translate(
    run: Annotated[Path, typer.Argument(help="The run that translates, or an export of it.")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Text, one sentence a line; TSV, whose first column is translated; or a PO, XLIFF "
            "or TMX file, whose empty targets are filled. Plain or gzip; - or nothing is standard "
            "input.",
        ),
    ] = "-",
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="What the input is; auto looks, but takes standard input for lines of text.",
        ),
    ] = Format.AUTO,
    encoding: Annotated[
        str | None,
        typer.Option(help="Of lines and TSV that are not UTF-8: latin-1, cp1252, …"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; default: standard output.")
    ] = None,
    ensemble: Annotated[
        list[Path] | None,
        typer.Option("--ensemble", help="A further run with the same vocabulary; repeatable."),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Beam width; 1 is greedy. Default: the recipe's.")
    ] = None,
    nbest: Annotated[
        int | None, typer.Option(help="So many translations of each line, as JSON lines.")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Its exponent; higher favours longer output.")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw, do not search.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Sampling: below 1, sharper.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sampling: from the K likeliest.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sampling: from the likeliest that reach this share.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Sampling: another seed, other samples.")] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Add a TAB and the score to each line.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line of input.")] = False,
    alignments: Annotated[
        Path | None, typer.Option(help="A file for the word alignments, in Pharaoh form.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="Source language in a document.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", help="Target language in a document.")
    ] = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    threads: Threads = None,
    precision: SearchPrecision = "float32",
    engine: Engine = "torch",
    quantization: Quantization = None,
) -> None:
    """Translate: N lines in, N lines out, in their order; empty lines stay empty.

    Examples:

        echo "The small dog sees the red house." | heedful translate runs/en-de

        heedful translate runs/en-de input.txt --output output.txt --alignments links.txt

        heedful translate runs/en-de messages.po --output messages.de.po

        heedful translate runs/en-de --format po < messages.po > messages.de.po
    """
    from heedful.basics.settings import check
    from heedful.decoding import SearchOptions
    from heedful.inference.files import LineFormat, check_output

    given: dict[str, Any] = {
        "beam": beam,
        "nbest": nbest,
        "length_penalty": length_penalty,
        "sample": sample or None,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    if not sample and seed is not None:
        raise UserError("--seed is for sampling; add --sample, or leave it out")
    if sample and beam is not None:
        raise UserError("--sample draws and --beam searches; leave one of them out")
    given = {name: value for name, value in given.items() if value is not None}
    check(SearchOptions, {"beam": max(nbest or 1, 1), **given}, "search options")
    line_format = LineFormat(json=json or (nbest or 1) > 1, scores=scores)
    if line_format.json and scores:
        raise UserError("--scores is for lines of text; JSON lines have the score: leave it out")
    for path in (output, alignments):
        check_output(path)
    if output is not None and alignments is not None and output == alignments:
        raise UserError(f"--output and --alignments are both {output}; give two files")
    use_threads(threads)
    _run(
        [run, *(ensemble or [])],
        file,
        encoding,
        form,
        output,
        alignments,
        line_format,
        given,
        {
            "engine": engine,
            "quantization": quantization,
            "device": device,
            "precision": precision,
            "checkpoint": checkpoint,
        },
        (source, target),
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(no_args_is_help=True)(translate)


def _run(
    runs: list[Path],
    file: str,
    encoding: str | None,
    form: Format,
    output: Path | None,
    alignments: Path | None,
    line_format: Any,
    given: dict[str, Any],
    chosen: dict[str, Any],
    languages: tuple[str | None, str | None],
) -> None:
    from heedful.basics.settings import check
    from heedful.decoding import SearchOptions
    from heedful.inference.files import count_lines, translate_document, translate_lines
    from heedful.inference.reading import is_tsv
    from heedful.interop.engines import load_with_engine

    translator = load_with_engine(runs, **chosen)
    usual = translator.options.model_dump()
    usual["beam"] = max(usual["beam"], given.get("nbest", 1))
    options = check(SearchOptions, {**usual, **given}, "search options")
    if translator.engine is not None:
        translator.engine.check(options)
    # What is read from a pipe to look at it cannot be read again.
    pipe = file == "-" or Path(file).is_fifo()
    document = _document(file, form, pipe, languages, translator)
    if document is not None:
        if line_format.json or line_format.scores or alignments is not None:
            raise UserError(
                f"{file} comes back as the same kind of file: --json, --nbest, --scores and "
                "--alignments are for text"
            )
        if encoding is not None:
            raise UserError(f"{file} says its encoding itself; leave --encoding out")
        with _bar(file, len(document.segments), output, "segments") as advance:
            translate_document(translator, document, output, options=options, advance=advance)
        return
    with _bar(file, None, output, "lines", count_lines) as advance:
        translate_lines(
            translator,
            file,
            output,
            options=options,
            line_format=line_format,
            encoding=encoding,
            tsv=form is Format.TSV or (form is Format.AUTO and is_tsv(file)),
            wary=form is Format.AUTO and pipe,
            alignments=alignments,
            advance=advance,
        )


def _document(
    file: str,
    form: Format,
    pipe: bool,
    languages: tuple[str | None, str | None],
    translator: "Translator",
) -> "Document | None":
    from heedful.data.documents import open_document
    from heedful.data.readers.kinds import Kind

    kind = {Format.PO: Kind.PO, Format.XLIFF: Kind.XLIFF, Format.TMX: Kind.TMX}.get(form)
    if kind is None and (pipe or form is not Format.AUTO):
        return None
    return open_document(
        file,
        source=languages[0] or translator.source_language,
        target=languages[1] or translator.target_language,
        kind=kind,
    )


def _bar(
    file: str, total: int | None, output: Path | None, unit: str, count: Any = None
) -> "AbstractContextManager[Advance | None]":
    """A bar on standard error, unless translations or typed lines share the terminal with it."""
    import sys

    from heedful.basics.progress import progress

    shares = (output is None and sys.stdout.isatty()) or (file == "-" and sys.stdin.isatty())
    if shares or not sys.stderr.isatty():
        return nullcontext()
    return progress("translating", total if count is None else count(file), unit)
