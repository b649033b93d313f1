"""``heedful predict``: any run, line by line."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.answering import Encoding, File, Head, Json, Output, bar
from heedful.tasks.options import Checkpoint, Device, SearchPrecision, Threads, use_threads

if TYPE_CHECKING:
    from heedful.basics.progress import Advance
    from heedful.tasks.spec import TaskSpec


def predict(
    run: Annotated[Path, typer.Argument(help="A run of any task.")],
    file: File = "-",
    encoding: Encoding = None,
    output: Output = None,
    json: Json = False,
    head: Head = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    threads: Threads = None,
    precision: SearchPrecision = "float32",
) -> None:
    """Use a run of any task: N lines in, N lines out, in their order.

    Each task has a command of its own with more options, such as translate or classify. Where an
    input is a pair of texts, a line has both with a TAB between them.

    Examples:

        echo "The small dog sees the red house." | heedful predict runs/en-de

        heedful predict runs/mood films.txt --json --output moods.jsonl
    """
    from heedful.inference.files import check_output, line_windows, write_lines
    from heedful.tasks.spec import spec_of_run

    check_output(output)
    use_threads(threads)
    spec = spec_of_run(run)[1].deciding(run, head)
    predictor = spec.load(run, head=head, device=device, precision=precision, checkpoint=checkpoint)
    windows = line_windows(file, encoding=encoding)
    with bar("predicting", file, output, "lines") as advance:
        write_lines(_lines(spec, predictor, windows, advance, as_json=json), output, "result")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(no_args_is_help=True)(predict)


def _lines(
    spec: "TaskSpec",
    predictor: Any,
    windows: Iterable[list[str]],
    advance: "Advance | None",
    *,
    as_json: bool,
) -> Iterator[list[str]]:
    from json import dumps

    from heedful.basics.notices import notice

    broken = 0
    for window in windows:
        found = predictor.predict([spec.read_input(line) for line in window])
        if as_json:
            yield [dumps(one.to_json(), ensure_ascii=False) for one in found]
        else:
            texts = [spec.write_result(one) for one in found]
            broken += sum(len(text.splitlines()) > 1 for text in texts)
            yield [" ".join(text.splitlines()) for text in texts]
        if advance is not None:
            advance(len(window))
    if broken:
        notice(f"{broken:,} results have line breaks, written as spaces; --json keeps them")
