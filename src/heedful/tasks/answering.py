"""What commands that answer line by line have in common."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.basics.errors import UserError

if TYPE_CHECKING:
    from heedful.basics.progress import Advance
    from heedful.inference import Trace

TRACE_ENDING = ".safetensors"

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Text, one a line; plain, gzip or xz; - or nothing is standard input.",
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="A file; default: standard output.")
]
Encoding = Annotated[
    str | None, typer.Option(help="Of FILE, if it is not UTF-8: latin-1, cp1252, …")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line of input.")]
Head = Annotated[
    str | None,
    typer.Option("--head", help="What is decided, of a run that has learnt several such things."),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace", help="A file (.safetensors) for what was attended to; heedful view shows it."
    ),
]


def check_outputs(output: Path | None, trace: Path | None) -> None:
    """Say before the work what cannot be written.

    Raises:
        UserError: a file cannot be written, or the trace has another ending.
    """
    from heedful.inference.files import check_output

    for path in (output, trace):
        check_output(path)
    if trace is not None and trace.suffix != TRACE_ENDING:
        raise UserError(f"{trace}: its name has to end in {TRACE_ENDING}")
    if trace is not None and trace == output:
        raise UserError(f"--output and --trace are both {output}; give two files")


def only_output(lines: Iterable[str]) -> str:
    """The one line that is not empty.

    Raises:
        UserError: there is none, or more than one.
    """
    found = [line for line in lines if line.strip()]
    if len(found) != 1:
        raise UserError(f"--trace looks at one text; {len(found):,} are given")
    return found[0]


def save_trace(trace: "Trace", path: Path) -> None:
    """Write the trace, and say how to look at it."""
    from heedful.basics.notices import notice

    trace.save(path)
    notice(f"look at it with: heedful view {path}")


def numbered(windows: Iterable[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Each window with the number of its first line, from 1."""
    first = 1
    for window in windows:
        yield first, window
        first += len(window)


def bar(
    doing: str, file: str, output: Path | None, unit: str, total: int | None = None
) -> "AbstractContextManager[Advance | None]":
    """A bar on standard error, unless answers or typed lines share the terminal with it.

    Args:
        doing: what is being done.
        file: the input.
        output: the output; standard output if None.
        unit: what is counted.
        total: how many there are; the input's lines if None.
    """
    import sys

    from heedful.basics.progress import progress
    from heedful.inference.files import count_lines

    shares = (output is None and sys.stdout.isatty()) or (file == "-" and sys.stdin.isatty())
    if shares or not sys.stderr.isatty():
        return nullcontext()
    return progress(doing, count_lines(file) if total is None else total, unit)
