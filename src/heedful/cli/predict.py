"""``heedful predict``: predictions of any run, line by line."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.cli.commands import add_command
from heedful.tasks.line_commands import Encoding, File, Head, Json, Output, bar
from heedful.tasks.options import (
    Checkpoint,
    Device,
    SearchPrecision,
    Threads,
    opening_of,
    use_threads,
)

if TYPE_CHECKING:
    from heedful.basics.progress import Advance
    from heedful.tasks.spec import TaskSpec


_BLANK = object()
"""An empty line that is no input of the task."""


@dataclass(frozen=True)
class Predict:
    """Predict with a run of any task: one output line for each input line, in the same order.

    Each task also has its own command with more options, such as translate or classify. If an input
    is a pair of texts, separate them with a TAB. If it is a picture or a recording, the line has
    the path of its file.

    Examples:

        echo "The small dog sees the red house." | heedful predict runs/en-de

        heedful predict runs/mood films.txt --json --output moods.jsonl
    """

    run: Annotated[Path, typer.Argument(help="A run of any task.")]
    file: File = "-"
    encoding: Encoding = None
    output: Output = None
    json: Json = False
    head: Head = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: SearchPrecision = "float32"


def _run(options: Predict) -> None:
    """Run the command."""
    from heedful.inference.files import check_output, line_windows, write_lines
    from heedful.tasks.spec import spec_of_run

    check_output(options.output)
    use_threads(options.threads)
    spec = spec_of_run(options.run)[1].task_of_head(options.run, options.head)
    _refuse_media(spec, options)
    predictor = spec.load(options.run, head=options.head, **opening_of(options))
    windows = line_windows(options.file, encoding=options.encoding)
    with bar("predicting", options.file, options.output, "lines") as advance:
        write_lines(
            _lines(spec, predictor, windows, advance, as_json=options.json),
            options.output,
            "result",
        )


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "predict", Predict, _run)


def _refuse_media(spec: "TaskSpec", options: Predict) -> None:
    """Raise UserError for a picture or a recording in place of a list of paths."""
    kind = (guess_type(options.file)[0] or "").split("/")[0]
    if spec.media_fields and kind in ("audio", "image", "video"):
        raise UserError(
            f"{options.file} is no list of paths: predict reads the path of a file in each line; "
            f"for one file, use 'heedful {spec.command} {options.run} {options.file}'"
        )


def _lines(
    spec: "TaskSpec",
    predictor: Any,
    windows: Iterable[list[str]],
    advance: "Advance | None",
    *,
    as_json: bool,
) -> Iterator[list[str]]:
    from json import dumps

    def write(one: Any) -> str:
        return dumps(one.to_json(), ensure_ascii=False) if as_json else spec.write_result(one)

    first, done = 1, 0
    for window in windows:
        read = [_read(spec, line, number) for number, line in enumerate(window, start=first)]
        lines = [number for number, one in enumerate(read, start=first) if one is not _BLANK]
        first += len(window)
        inputs = [one for one in read if one is not _BLANK]
        found = iter(spec.predict_next(predictor, inputs, done, lines))
        done += len(inputs)
        yield ["" if one is _BLANK else write(next(found)) for one in read]
        if advance is not None:
            advance(len(window))


def _read(spec: "TaskSpec", line: str, number: int) -> Any:
    """The input of a line, or ``_BLANK``.

    Raises:
        UserError: the line is no input of the task; the message has its number.
    """
    from heedful.basics.json_models import named

    try:
        return named(spec.read_input(spec.read_argument(line)), f"line {number}")
    except UserError as error:
        if not line.strip():
            return _BLANK
        raise UserError(f"line {number}: {error}") from error
