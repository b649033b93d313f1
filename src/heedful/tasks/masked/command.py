"""``heedful fill``: predict masked words."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.tasks.line_commands import (
    Encoding,
    Head,
    Json,
    Output,
    TraceFile,
    bar,
    check_one_text,
    check_outputs,
    numbered,
    save_trace,
)
from heedful.tasks.options import Checkpoint, Device, Precision, Threads, opening_of, use_threads

if TYPE_CHECKING:
    from heedful.basics.progress import Advance
    from heedful.inference.fill_mask import Filling, FillMask


@dataclass(frozen=True)
class Fill:
    """Fill in masked words.

    For one TEXT, print the most probable words with their probabilities. For lines of a file, write
    one line each, filled in with the most probable words; empty lines stay empty.

    Examples:

        heedful fill runs/bert "The [MASK] sat on the [MASK]."

        heedful fill runs/bert --file hidden.txt --json --output filled.jsonl
    """

    run: Annotated[Path, typer.Argument(help="The run of a masked language model.")]
    text: Annotated[
        str | None,
        typer.Argument(help="A text with [MASK] for each masked word; default: read lines."),
    ] = None
    file: Annotated[
        str, typer.Option("--file", help="One text per line; default: standard input.")
    ] = "-"
    count: Annotated[int, typer.Option("--count", help="Number of candidates per mask.")] = 5
    encoding: Encoding = None
    output: Output = None
    json: Json = False
    trace: TraceFile = None
    head: Head = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: Fill) -> None:
    """Run the command."""
    check_outputs(options.output, options.trace)
    check_one_text(options.text, options.file, options.trace)
    use_threads(options.threads)
    from heedful.inference.files import write_lines
    from heedful.tasks.texts.loading import load_filler

    filler = load_filler(options.run, head=options.head, **opening_of(options))
    if options.text is None:
        with bar("filling", options.file, options.output, "texts") as advance:
            lines = _lines(filler, options, advance)
            write_lines(lines, options.output, "answer")
        return
    found = filler.fill(options.text, options.count)
    if options.trace is not None:
        save_trace(filler.trace(options.text), options.trace)
    write_lines([[_object(found)] if options.json else _shown(found)], options.output, "answer")


def _lines(filler: "FillMask", options: Fill, advance: "Advance | None") -> Iterator[list[str]]:
    from heedful.inference.files import line_windows

    for first, window in numbered(line_windows(options.file, encoding=options.encoding)):
        found = filler.fill_all(window, options.count, first=first, advance=advance)
        yield [_object(one) if options.json else one.text for one in found]


def _object(one: "Filling") -> str:
    from json import dumps

    return dumps(one.to_json(), ensure_ascii=False)


def _shown(found: "Filling") -> Iterator[str]:
    """Lines with probability, word and text; an empty line separates two masks."""
    for place, candidates in enumerate(found.masks):
        if place:
            yield ""
        for one in candidates:
            yield f"{one.probability:.4f}\t{one.word}\t{one.text}"
