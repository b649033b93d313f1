"""``heedful caption``: a description of each image."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.tasks.image_input import Files, paths_given, predicted_lines, seen_in
from heedful.tasks.line_commands import Json, Output, TraceFile, check_outputs, save_trace
from heedful.tasks.options import (
    Beam,
    Checkpoint,
    Device,
    Precision,
    Threads,
    load_for,
    use_threads,
)


@dataclass(frozen=True)
class CaptionOptions:
    """Describe images: one description for each image, in the same order.

    Examples:

        heedful caption runs/captions photos/*.jpg

        heedful caption runs/captions dog.jpg --json --nbest 3 --beam 5

        heedful caption runs/captions dog.jpg --trace dog.safetensors
    """

    run: Annotated[Path, typer.Argument(help="A run that describes images.")]
    files: Files = None
    output: Output = None
    json: Json = False
    beam: Beam = None
    nbest: Annotated[
        int, typer.Option("--nbest", help="Descriptions of each image in the JSON output.")
    ] = 1
    trace: TraceFile = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: CaptionOptions) -> None:
    """Run the command."""
    check_outputs(options.output, options.trace)
    use_threads(options.threads)
    from heedful.basics.settings import check
    from heedful.decoding import SearchOptions
    from heedful.inference.files import write_lines

    predictor = load_for("captioning", options)
    own = predictor.options.model_dump() | {"nbest": options.nbest}
    if options.beam is not None:
        own["beam"] = options.beam
    predictor.options = check(SearchOptions, own, "the options")
    paths = paths_given(options.files, traced=options.trace is not None)
    if options.trace is not None:
        save_trace(predictor.trace(seen_in(next(iter(paths)))), options.trace)
    lines = predicted_lines(predictor.predict, paths, options.json)
    write_lines(lines, options.output, "description")
