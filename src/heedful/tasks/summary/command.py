"""``heedful summarise``: a summary of each text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.basics.errors import UserError
from heedful.tasks.line_commands import (
    Encoding,
    Json,
    Output,
    TraceFile,
    check_outputs,
    with_trace,
)
from heedful.tasks.options import (
    Beam,
    Checkpoint,
    Device,
    Precision,
    Threads,
    load_for,
    use_threads,
)

if TYPE_CHECKING:
    from heedful.tasks.summary.examples import ToSummarise
    from heedful.tasks.summary.predictor import Summariser, Summary

_AT_ONCE = 64

Texts = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="One text per line; or a table (.jsonl, .csv, .tsv) with a column of texts. May be "
        "compressed with gzip or xz; default or -: standard input, as lines.",
    ),
]


@dataclass(frozen=True)
class SummariseOptions:
    """Summarise texts: one summary for each text, in the same order; empty lines stay empty.

    Examples:

        heedful summarise runs/mails mails.txt

        heedful summarise runs/mails mails.csv --column body --output subjects.txt

        heedful summarise runs/mails mails.jsonl --json

        echo "A long mail." | heedful summarise runs/mails --trace mail.safetensors
    """

    run: Annotated[Path, typer.Argument(help="A run that summarises.")]
    file: Texts = "-"
    column: Annotated[
        str | None,
        typer.Option("--column", help="Column of the texts; default: data.source_column."),
    ] = None
    encoding: Encoding = None
    output: Output = None
    json: Json = False
    copies: Annotated[
        bool,
        typer.Option(
            "--copies", help="Mark words that are copied from the text: word[position, share]."
        ),
    ] = False
    beam: Beam = None
    trace: TraceFile = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: SummariseOptions) -> None:
    """Run the command."""
    check_outputs(options.output, options.trace)
    if options.json and options.copies:
        raise UserError("--json includes what is copied; leave out --copies")
    use_threads(options.threads)
    from heedful.basics.settings import check
    from heedful.inference.files import write_lines

    predictor = load_for("summary", options)
    if options.beam is not None:
        own = predictor.options.model_dump() | {"beam": options.beam}
        predictor.options = check(type(predictor.options), own, "the options")
    texts = read_texts(options, options.column or predictor.recipe.data.source_column)
    if options.trace is not None:
        texts = with_trace(texts, predictor.trace, options.trace)
    write_lines(_lines(predictor, texts, options), options.output, "summary")


def read_texts(options: SummariseOptions, column: str) -> Iterator["ToSummarise | None"]:
    """The texts of the file, None for an empty line.

    Raises:
        UserError: the file cannot be read, or is a table without the column.
    """
    from heedful.data.readers.kinds import extension
    from heedful.data.readers.labelled import FORMATS
    from heedful.data.readers.summaries import read_texts_to_summarise
    from heedful.inference.files import line_windows
    from heedful.tasks.summary.examples import ToSummarise

    if extension(options.file) in FORMATS:
        found = read_texts_to_summarise(options.file, column, options.encoding)
        for number, one in enumerate(found, start=1):
            yield None if one is None else ToSummarise(source=one).named(f"text {number}")
        return
    if options.column is not None:
        raise UserError(
            f"--column {options.column} is for tables, and {options.file} is read as lines; name "
            "the file .jsonl, .csv or .tsv, or leave out --column"
        )
    windows = line_windows(options.file, encoding=options.encoding)
    for number, line in enumerate(chain.from_iterable(windows), start=1):
        yield ToSummarise(source=line).named(f"line {number}") if line.strip() else None


def _lines(
    predictor: "Summariser", texts: Iterable["ToSummarise | None"], options: SummariseOptions
) -> Iterator[list[str]]:
    every = enumerate(texts)
    while some := list(islice(every, _AT_ONCE)):
        keys = [number for number, one in some if one is not None]
        found = iter(predictor.predict([one for _, one in some if one is not None], keys=keys))
        yield ["" if one is None else _line(next(found), options) for _, one in some]


def _line(summary: "Summary", options: SummariseOptions) -> str:
    import json

    if options.json:
        return json.dumps(summary.to_json(), ensure_ascii=False)
    if not options.copies:
        return summary.text
    return " ".join(
        f"{one.word}[{one.position}, {1 - one.generated:.2f}]"
        if one.word == one.source and one.generated < 0.5
        else one.word
        for one in summary.words
    )
