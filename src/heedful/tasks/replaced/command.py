"""``heedful detect``: which tokens of a text look replaced."""

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
    from heedful.tasks.replaced.predictor import Detection, DetectReplaced


@dataclass(frozen=True)
class Detect:
    """Detect tokens that look replaced, with the discriminator of ELECTRA's pre-training.

    For one TEXT, print each token with the probability that it was replaced. For lines of a file,
    write the tokens of each, with those that look replaced in [brackets]; empty lines stay empty.

    Examples:

        heedful detect runs/electra "The cat sat on the parliament."

        heedful detect runs/electra --file lines.txt --json --output detected.jsonl
    """

    run: Annotated[Path, typer.Argument(help="The run of a discriminator.")]
    text: Annotated[str | None, typer.Argument(help="A text; default: read lines.")] = None
    file: Annotated[
        str, typer.Option("--file", help="One text per line; default: standard input.")
    ] = "-"
    encoding: Encoding = None
    output: Output = None
    json: Json = False
    trace: TraceFile = None
    head: Head = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: Detect) -> None:
    """Run the command."""
    check_outputs(options.output, options.trace)
    check_one_text(options.text, options.file, options.trace)
    use_threads(options.threads)
    from heedful.inference.files import write_lines
    from heedful.tasks.replaced.loading import load_detector

    detector = load_detector(options.run, head=options.head, **opening_of(options))
    if options.text is None:
        with bar("detecting", options.file, options.output, "texts") as advance:
            lines = _lines(detector, options, advance)
            write_lines(lines, options.output, "answer")
        return
    found = detector.detect([options.text])[0]
    if options.trace is not None:
        save_trace(detector.trace(options.text), options.trace)
    shown = [_object(found)] if options.json else list(_shown(found))
    write_lines([shown], options.output, "answer")


def _lines(
    detector: "DetectReplaced", options: Detect, advance: "Advance | None"
) -> Iterator[list[str]]:
    from heedful.inference.files import line_windows

    for first, window in numbered(line_windows(options.file, encoding=options.encoding)):
        found = detector.detect(window, first=first, advance=advance)
        yield [_object(one) if options.json else one.text for one in found]


def _object(one: "Detection") -> str:
    from json import dumps

    return dumps(one.to_json(), ensure_ascii=False)


def _shown(found: "Detection") -> Iterator[str]:
    """Lines with probability and token."""
    for token, probability in zip(found.tokens, found.probabilities, strict=True):
        yield f"{probability:.4f}\t{token}"
