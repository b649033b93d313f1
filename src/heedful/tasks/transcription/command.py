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
    Beam,
    Checkpoint,
    Device,
    Precision,
    Threads,
    load_for,
    use_threads,
)
from heedful.tasks.sound_input import heard_in, lines_of

_AT_ONCE = 16


@dataclass(frozen=True)
class TranscribeOptions:
    """Transcribe recordings: one line for each file, in the same order.

    Recordings that are longer than data.longest of the recipe are cut into parts where they are
    quiet.

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
    beam: Beam = None
    nbest: Annotated[
        int, typer.Option("--nbest", help="Texts of each recording in the JSON output.")
    ] = 1
    language_model: Annotated[
        Path | None,
        typer.Option(
            "--language-model",
            help="A run of a language model over the same units, for the search.",
        ),
    ] = None
    language_weight: Annotated[
        float, typer.Option("--language-weight", min=0.0, help="Weight of the language model.")
    ] = 0.3
    ctc_weight: Annotated[
        float | None,
        typer.Option(
            "--ctc-weight",
            min=0.0,
            max=1.0,
            help="Weight of CTC in the search, for a model with CTC beside a decoder.",
        ),
    ] = None
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
    from heedful.basics.settings import check
    from heedful.inference.files import write_lines

    predictor = load_for("transcription", options)
    own = predictor.options.model_dump() | {"nbest": options.nbest}
    if options.beam is not None:
        own["beam"] = options.beam
    if options.ctc_weight is not None:
        own["ctc_weight"] = options.ctc_weight
    predictor.options = check(type(predictor.options), own, "the options")
    if options.ctc_weight:
        _check_joint(predictor)
    if options.language_model is not None:
        _use_language(predictor, options)
    paths = lines_of(options.files)
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


def _check_joint(predictor: Any) -> None:
    from heedful.tasks.transcription.recipe import require_both

    try:
        require_both(predictor.recipe.model, "--ctc-weight")
    except ValueError as error:
        raise UserError(str(error)) from None


def _use_language(predictor: Any, options: TranscribeOptions) -> None:
    from heedful.tasks.spec import spec_of_run

    assert options.language_model is not None
    _, spec = spec_of_run(options.language_model)
    if spec.name != "language-model":
        raise UserError(f"{options.language_model} is a run for {spec.name}, no language model")
    generator = spec.load(options.language_model, device=options.device)
    predictor.with_language(generator, options.language_weight)


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
    predict: Callable[[Sequence[Any]], Sequence[Any]], paths: Iterable[str], as_json: bool
) -> Iterator[list[str]]:
    """One line for each path, in the same order; an empty one for an empty path."""
    left = iter(paths)
    while some := list(islice(left, _AT_ONCE)):
        found = iter(predict([heard_in(path) for path in some if path]))
        yield [_line(path, next(found), as_json) if path else "" for path in some]


def _line(path: str, found: Any, as_json: bool) -> str:
    if not as_json:
        return str(found)
    return json.dumps({"sound": path, **found.to_json()}, ensure_ascii=False)
