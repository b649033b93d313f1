"""``heedful classify-images``: the label of each image."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.tasks.image_input import Files, paths_given, predicted_lines, seen_in
from heedful.tasks.line_commands import Json, Output, TraceFile, check_outputs, save_trace
from heedful.tasks.options import Checkpoint, Device, Precision, Threads, load_for, use_threads


@dataclass(frozen=True)
class ImageOptions:
    """Classify images: one label for each image, in the same order.

    Examples:

        heedful classify-images runs/animals photos/*.jpg

        heedful classify-images runs/animals cat.png --json

        find photos -name '*.jpg' | heedful classify-images runs/animals --output labels.txt
    """

    run: Annotated[Path, typer.Argument(help="A run that classifies images.")]
    files: Files = None
    output: Output = None
    json: Json = False
    trace: TraceFile = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: ImageOptions) -> None:
    """Run the command."""
    check_outputs(options.output, options.trace)
    use_threads(options.threads)
    from heedful.inference.files import write_lines

    predictor = load_for("image-classification", options)
    paths = paths_given(options.files, traced=options.trace is not None)
    if options.trace is not None:
        save_trace(predictor.trace(seen_in(next(iter(paths)))), options.trace)
    write_lines(predicted_lines(predictor.predict, paths, options.json), options.output, "label")
