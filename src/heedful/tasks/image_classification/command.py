"""``heedful classify-images``: the label of each image."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.tasks.line_commands import Json, Output, TraceFile, check_outputs, save_trace
from heedful.tasks.options import Checkpoint, Device, Precision, Threads, opening_of, use_threads

if TYPE_CHECKING:
    from heedful.tasks.image_classification.examples import Seen

_AT_ONCE = 64

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE…", help="Images; default: their paths, one per line, from standard input."
    ),
]


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
    from heedful.inference.files import line_windows, write_lines
    from heedful.tasks.spec import spec_of_run

    _, spec = spec_of_run(options.run)
    if spec.name != "image-classification":
        raise UserError(f"{options.run} is a run for {spec.name}; use heedful {spec.command}")
    predictor: Any = spec.load(options.run, **opening_of(options))
    paths: Iterable[str] = options.files or (
        line.strip() for window in line_windows("-") for line in window
    )
    if options.trace is not None:
        paths = list(paths)
        if len(paths) != 1:
            raise UserError(f"--trace needs one image; {len(paths):,} are given")
        save_trace(predictor.trace(seen_in(paths[0])), options.trace)
    write_lines(_lines(predictor, iter(paths), options.json), options.output, "label")


def seen_in(path: str) -> "Seen":
    """The image in a file.

    Raises:
        UserError: the file cannot be read.
    """
    from heedful.data.readers.images import as_uri
    from heedful.tasks.image_classification.examples import Seen

    return Seen(image=as_uri(path))


def _lines(predictor: Any, paths: Iterator[str], as_json: bool) -> Iterator[list[str]]:
    while some := list(islice(paths, _AT_ONCE)):
        found = iter(predictor.predict([seen_in(path) for path in some if path]))
        yield [_line(path, next(found), as_json) if path else "" for path in some]


def _line(path: str, found: Any, as_json: bool) -> str:
    if not as_json:
        return str(found)
    return json.dumps({"image": path, **found.to_json()}, ensure_ascii=False)
