"""Options and functions of the commands that predict line by line."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from heedful.basics.errors import UserError

if TYPE_CHECKING:
    from heedful.basics.progress import Advance
    from heedful.inference import Trace

T = TypeVar("T")

TRACE_ENDING = ".safetensors"

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="One text per line; may be gzip- or xz-compressed; default or -: standard input.",
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Output file; default: standard output.")
]
Encoding = Annotated[
    str | None, typer.Option(help="Encoding of FILE, if not UTF-8: latin-1, cp1252, …")
]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON object per input line.")]
Head = Annotated[
    str | None,
    typer.Option("--head", help="Which head of a multi-task run."),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace", help="Write a trace of the attention (.safetensors), for heedful view."
    ),
]


def check_outputs(output: Path | None, trace: Path | None, **more: Path | None) -> None:
    """Check that output files can be written, before the work begins.

    Args:
        output: the file of ``--output``.
        trace: the file of ``--trace``.
        **more: the files of other options, by their names.

    Raises:
        UserError: a file cannot be written, two options have the same file, or the name of the
            trace does not end in ``.safetensors``.
    """
    from heedful.inference.files import check_output

    names: dict[Path, str] = {}
    for name, path in {"output": output, "trace": trace, **more}.items():
        check_output(path)
        if path is not None and (other := names.setdefault(path, name)) != name:
            raise UserError(f"--{other} and --{name} are both {path}; give two files")
    if trace is not None and trace.suffix != TRACE_ENDING:
        raise UserError(f"{trace}: the file name must end in {TRACE_ENDING}")


def check_one_text(text: str | None, file: str, trace: Path | None) -> None:
    """Raise UserError if a text and a file are given, or a trace of a file is asked for."""
    if text is not None and file != "-":
        raise UserError(f"both a text and --file {file} are given; leave one of them out")
    if trace is not None and text is None:
        raise UserError("--trace needs one text; give it as TEXT")


def with_trace(
    inputs: Iterable[T | None], trace: "Callable[[T], Trace]", path: Path, noun: str = "text"
) -> Iterator[T | None]:
    """Write the trace of the only input that is not None, then yield all inputs.

    Raises:
        UserError: there is no input, or there are several.
    """
    every = list(inputs)
    found = [one for one in every if one is not None]
    if len(found) != 1:
        raise UserError(f"--trace needs one {noun}; the input has {len(found):,}")
    save_trace(trace(found[0]), path)
    yield from every


def save_trace(trace: "Trace", path: Path) -> None:
    """Write the trace, and print the command that shows it."""
    from heedful.basics.notices import notice

    trace.save(path)
    notice(f"trace written; show it with: heedful view {path}")


def numbered(windows: Iterable[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Each window with the number of its first line, from 1."""
    first = 1
    for window in windows:
        yield first, window
        first += len(window)


def bar(
    doing: str, file: str, output: Path | None, unit: str, total: int | None = None
) -> "AbstractContextManager[Advance | None]":
    """A progress bar on standard error, unless input or output use the same terminal.

    Args:
        doing: the label of the bar.
        file: the input.
        output: the output; standard output if None.
        unit: the unit that is counted.
        total: the number of units; the number of input lines if None.
    """
    import sys

    from heedful.basics.progress import progress
    from heedful.inference.files import count_lines

    shares = (output is None and sys.stdout.isatty()) or (file == "-" and sys.stdin.isatty())
    if shares or not sys.stderr.isatty():
        return nullcontext()
    return progress(doing, count_lines(file) if total is None else total, unit)
