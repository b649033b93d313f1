"""``heedful embed``: the vector of each text, and the texts that are most similar."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from heedful.basics.errors import UserError
from heedful.tasks.line_commands import Encoding, File, Head, Json, Output, bar, check_outputs
from heedful.tasks.options import Checkpoint, Device, Precision, Threads, opening_of, use_threads

if TYPE_CHECKING:
    from heedful.inference.text_reader import Advance
    from heedful.tasks.embedding.predictor import Embedder
    from heedful.tasks.embedding.search import Found

_NEAREST = 5
ARRAY_ENDING = ".npy"


@dataclass(frozen=True)
class Embed:
    """Write a vector for each text, in the same order; an empty line has a vector of zeros.

    Each vector is a JSON object on a line of its own. If the name of the output file ends in .npy,
    all vectors are written as one NumPy array [texts, width] of float32.

    Examples:

        heedful embed runs/vectors sentences.txt --output sentences.npy

        heedful embed runs/vectors sentences.txt --similar "A man is playing a guitar."

        heedful embed runs/vectors sentences.txt --nearest 3
    """

    run: Annotated[Path, typer.Argument(help="A run that gives vectors.")]
    file: File = "-"
    encoding: Encoding = None
    output: Output = None
    similar: Annotated[
        str | None,
        typer.Option(
            "--similar",
            metavar="TEXT",
            help="Write the lines that are most similar to this text instead: cosine, line number "
            "and line, separated by TABs.",
        ),
    ] = None
    nearest: Annotated[
        int | None,
        typer.Option(
            "--nearest",
            min=1,
            help="Write for each line the numbers of its K most similar other lines and their "
            "cosines instead; with --similar: how many lines (5).",
        ),
    ] = None
    json: Json = False
    head: Head = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: Embed) -> None:
    """Run the command."""
    from heedful.inference.files import write_lines

    searches = options.similar is not None or options.nearest is not None
    as_array = options.output is not None and options.output.suffix == ARRAY_ENDING
    check_outputs(options.output, None)
    if options.similar is not None and not options.similar.strip():
        raise UserError("--similar is empty; give a text to compare the lines with")
    if searches and as_array:
        raise UserError(f"{ARRAY_ENDING} files have vectors; leave out --similar and --nearest")
    if options.json and as_array:
        raise UserError(f"{options.output} is an array; leave out --json")
    use_threads(options.threads)
    from heedful.tasks.embedding.predictor import Embedder
    from heedful.tasks.texts.loading import load_reader

    how = opening_of(options)
    embedder = load_reader(Embedder, "embedding", options.run, options.head, **how)
    with bar("embedding", options.file, options.output, "texts") as advance:
        if as_array and options.output is not None:
            _write_array(embedder, options, options.output, advance)
        elif searches:
            write_lines(_searched(embedder, options, advance), options.output, "line")
        else:
            write_lines(_vectors(embedder, options, advance), options.output, "vector")


def _windows(options: Embed) -> Iterator[list[str]]:
    from heedful.inference.files import line_windows

    return line_windows(options.file, encoding=options.encoding)


def _vectors(
    embedder: "Embedder", options: Embed, advance: "Advance | None"
) -> Iterator[Iterator[str]]:
    """A JSON object for each line."""
    for lines in _windows(options):
        yield (json.dumps(one.to_json()) for one in embedder.predict(lines))
        if advance is not None:
            advance(len(lines))


def _write_array(
    embedder: "Embedder", options: Embed, path: Path, advance: "Advance | None"
) -> None:
    """Write the vectors window by window; memory does not grow with the file."""
    from heedful.basics.files import atomic_file

    with atomic_file(path) as file:
        _header(file, 0, embedder.width)
        begins, count = file.tell(), 0
        for lines in _windows(options):
            found = embedder.embed(lines, advance=advance)
            file.write(found.astype("<f4").tobytes())
            count += len(found)
        file.seek(0)
        _header(file, count, embedder.width)
        assert file.tell() == begins  # NumPy reserves room for the number of rows to grow


def _header(file: IO[bytes], count: int, width: int) -> None:
    from numpy.lib import format as array_format

    about = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
    array_format.write_array_header_1_0(file, about)


def _searched(
    embedder: "Embedder", options: Embed, advance: "Advance | None"
) -> Iterator[list[str]]:
    """The lines found, for the query or for each line; all vectors are kept in memory."""
    import numpy as np

    from heedful.tasks.embedding.search import nearest

    lines: list[str] = []
    blocks = [np.zeros((0, embedder.width), np.float32)]
    for window in _windows(options):
        lines += window
        blocks.append(embedder.embed(window, advance=advance))
    vectors = np.concatenate(blocks)
    count = options.nearest or _NEAREST
    if options.similar is not None:
        (found,) = nearest(embedder.embed([options.similar]), vectors, count)
        yield [_line(one, lines, as_json=options.json) for one in found]
        return
    for number, own in enumerate(nearest(vectors, vectors, count, first=0), start=1):
        if options.json:
            yield [_nearest_json(number, own, lines)]
        else:
            yield [" ".join(f"{one.place + 1}:{one.cosine:.4f}" for one in own)]


def _facts(one: "Found", lines: list[str]) -> dict[str, object]:
    return {"line": one.place + 1, "cosine": one.cosine, "text": lines[one.place]}


def _line(one: "Found", lines: list[str], *, as_json: bool) -> str:
    if as_json:
        return json.dumps(_facts(one, lines), ensure_ascii=False)
    return f"{one.cosine:.4f}\t{one.place + 1}\t{lines[one.place]}"


def _nearest_json(number: int, found: "list[Found]", lines: list[str]) -> str:
    facts = {"line": number, "nearest": [_facts(one, lines) for one in found]}
    return json.dumps(facts, ensure_ascii=False)
