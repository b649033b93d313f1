"""``heedful transcribe``: the text of each recording."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from heedful.basics.errors import UserError
from heedful.tasks.line_commands import Json, Output, TraceFile, check_outputs, save_trace
from heedful.tasks.options import (
    Checkpoint,
    Device,
    Precision,
    Threads,
    load_for,
    use_threads,
)
from heedful.tasks.sound_input import check_files, heard_in, lines_of
from heedful.tasks.transcription.search_choice import SearchChoice, choose_search

_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class TranscribeOptions(SearchChoice):
    """Transcribe recordings: one line for each file, in the same order.

    Recordings that are much longer than those of the training are cut into parts where they are
    quiet. Files that are no recordings are found before the first one is transcribed.

    Examples:

        heedful transcribe runs/digits calls/*.wav

        heedful transcribe runs/digits call.wav --json --nbest 3

        heedful transcribe runs/digits talk.ogg --subtitles srt -o talk.srt

        heedful transcribe runs/digits call.wav --language-model runs/letters
    """

    run: Annotated[Path, typer.Argument(help="A run that transcribes sounds.")]
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE…",
            help="Recordings (WAV, FLAC, Ogg, MP3); default: their paths, one per line, from "
            "standard input.",
        ),
    ] = None
    output: Output = None
    json: Json = False
    subtitles: Annotated[
        Literal["srt", "vtt"] | None,
        typer.Option("--subtitles", help="Write subtitles of one recording, from word times."),
    ] = None
    nbest: Annotated[
        int,
        typer.Option(
            "--nbest",
            help="Texts of each recording in the JSON output, by log-probability divided by the "
            "length penalty.",
        ),
    ] = 1
    trace: TraceFile = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: TranscribeOptions) -> None:
    """Run the command."""
    if options.subtitles and options.json:
        raise UserError("--subtitles and --json exclude each other; leave out one")
    check_outputs(options.output, options.trace)
    use_threads(options.threads)
    from heedful.inference.files import write_lines

    predictor = load_for("transcription", options)
    check_files(options.files or [])
    choose_search(predictor, options, nbest=options.nbest, device=options.device)
    paths: Iterable[str] = _apart(lines_of(options.files), options.output)
    for name, given in (("--trace", options.trace), ("--subtitles", options.subtitles)):
        if given is not None:
            paths = _only(paths, name)
    if options.trace is not None:
        save_trace(predictor.trace(heard_in(next(iter(paths)))), options.trace)
    if options.subtitles is not None:
        lines = iter([_subtitles(predictor, next(iter(paths)), options.subtitles)])
    else:
        lines = _lines(predictor.predict, paths, options.json)
    write_lines(lines, options.output, "transcription")


def _apart(paths: Iterable[str], output: Path | None) -> Iterator[str]:
    """The paths, of which the output would replace none.

    Raises:
        UserError: one is the output.
    """
    for path in paths:
        both = output is not None and output.exists() and path and Path(path).exists()
        if output is not None and both and output.samefile(path):
            raise UserError(f"--output {output} is a recording to transcribe; give another file")
        yield path


def _only(paths: Iterable[str], option: str) -> list[str]:
    """The one path.

    Raises:
        UserError: there is not exactly one.
    """
    found = [path for path in paths if path]
    if len(found) != 1:
        raise UserError(f"{option} needs one recording; {len(found):,} are given")
    return found


def _subtitles(predictor: Any, path: str, form: str) -> list[str]:
    from heedful.tasks.transcription.subtitles import subtitles

    [found] = predictor.predict([heard_in(path)])
    if found.text and not found.words:
        raise UserError("--subtitles needs attention to the sound, or CTC; this run has neither")
    return subtitles(found.words, form)


def _lines(
    predict: Callable[..., Sequence[Any]], paths: Iterable[str], as_json: bool
) -> Iterator[list[str]]:
    """One line for each path, in the same order; an empty one for an empty path."""
    left = enumerate(paths)
    while some := list(islice(left, _AT_ONCE)):
        keys = [number for number, path in some if path]
        found = iter(predict([heard_in(path) for _, path in some if path], keys=keys))
        yield [_line(path, next(found), as_json) if path else "" for _, path in some]


def _line(path: str, found: Any, as_json: bool) -> str:
    if not as_json:
        return str(found)
    return json.dumps({"sound": path, **found.to_json()}, ensure_ascii=False)
