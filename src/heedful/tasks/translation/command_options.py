"""The options of ``heedful translate``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.tasks.options import (
    Checkpoint,
    Device,
    Engine,
    Quantization,
    SearchPrecision,
    SourceColumn,
    TargetColumn,
    Threads,
)
from heedful.tasks.translation.input_format import Format


@dataclass(frozen=True)
class Translate:
    """Translate texts: one output line per input line, in order; empty lines stay empty.

    Examples:

        echo "The small dog sees the red house." | heedful translate runs/en-de

        heedful translate runs/en-de input.txt --output output.txt --alignments links.txt

        heedful translate runs/en-de messages.po --output messages.de.po

        heedful translate runs/en-de --format po < messages.po > messages.de.po

        heedful translate runs/en-de texts.csv --source-column English --target-column German

        heedful translate runs/en-de locales/ --output translated/

        heedful translate runs/en-de corpus/ --bulk --workers 4 --output translated/
    """

    run: Annotated[Path, typer.Argument(help="The run of a translator, or its CTranslate2 export.")]
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Text with one sentence per line; TSV (the first column is translated); a "
            "document (PO, XLIFF, TMX, JSON, CSV, HTML, Markdown and others); or a folder of "
            "documents. May be compressed with gzip; default or -: standard input.",
        ),
    ] = "-"
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="Format of the input; auto detects it, and reads standard input as lines.",
        ),
    ] = Format.AUTO
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Encoding of lines, TSV and documents that do not declare one: latin-1, cp1252, …"
        ),
    ] = None
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file; default: standard output.")
    ] = None
    ensemble: Annotated[
        list[Path] | None,
        typer.Option("--ensemble", help="Another run with the same vocabulary; repeatable."),
    ] = None
    beam: Annotated[
        int | None, typer.Option(help="Beam width; 1 is greedy. Default: the recipe's.")
    ] = None
    nbest: Annotated[
        int | None, typer.Option(help="Number of translations per line, written as JSON lines.")
    ] = None
    length_penalty: Annotated[
        float | None,
        typer.Option(help="Exponent of the length penalty; higher values favour longer output."),
    ] = None
    sample: Annotated[bool, typer.Option("--sample", help="Sample instead of beam search.")] = False
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; below 1 is less random.")
    ] = None
    top_k: Annotated[int | None, typer.Option(help="Sample from the K most probable tokens.")] = (
        None
    )
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the most probable tokens with this total probability."),
    ] = None
    seed: Annotated[int | None, typer.Option(help="Seed of sampling.")] = None
    scores: Annotated[
        bool, typer.Option("--scores", help="Append a TAB and the score to each line.")
    ] = False
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object per input line.")] = (
        False
    )
    alignments: Annotated[
        Path | None, typer.Option(help="Write word alignments to this file, in Pharaoh format.")
    ] = None
    source: Annotated[str | None, typer.Option("--from", help="Source language in a document.")] = (
        None
    )
    target: Annotated[str | None, typer.Option("--to", help="Target language in a document.")] = (
        None
    )
    source_column: SourceColumn = None
    target_column: TargetColumn = None
    no_memory: Annotated[
        bool,
        typer.Option(
            "--no-memory",
            help="Do not use the run's translation memory. By default exact matches are taken from "
            "it, unless --scores, --nbest, --sample or --alignments is given.",
        ),
    ] = False
    keep_unknown: Annotated[
        bool,
        typer.Option(
            "--keep-unknown",
            help="Keep names that occur in no training text as they are. Needs a run with "
            "data.protect and a memory.",
        ),
    ] = False
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Documents: exit code 1 where placeholders, tags or numbers of a translation "
            "differ from its source.",
        ),
    ] = False
    bulk: Annotated[
        bool,
        typer.Option(
            "--bulk",
            help="Translate a large text file, or a folder of them, in worker processes. --output "
            "is a folder. Rerun the command to resume an interrupted job.",
        ),
    ] = False
    workers: Annotated[
        int | None, typer.Option("--workers", help="--bulk: number of processes; default: 1.")
    ] = None
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="--bulk: workers are placed on a Ray cluster: auto, HOST:PORT of its head, or "
            "local for this machine.",
        ),
    ] = None
    shard_lines: Annotated[
        int | None,
        typer.Option("--shard-lines", help="--bulk: lines of a shard; default: 10000."),
    ] = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: SearchPrecision = "float32"
    engine: Engine = "torch"
    quantization: Quantization = None
