"""``heedful speak``: a text as a sound file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.basics.errors import UserError
from heedful.tasks.line_commands import TraceFile, check_outputs, save_trace
from heedful.tasks.options import Checkpoint, Device, Precision, Threads, load_for, use_threads

FORMS = {".wav": "WAV", ".flac": "FLAC", ".ogg": "OGG"}
"""Ending of a file → its format."""


@dataclass(frozen=True)
class SpeakOptions:
    """Speak a text: write it as a sound file.

    The text can have any number of sentences, which are spoken one by one.

    Examples:

        heedful speak runs/voice "The small dog sees the red house." -o dog.wav

        heedful speak runs/voice --output story.flac < story.txt

        heedful speak runs/voice "Good morning." -o morning.wav --trace morning.safetensors
    """

    run: Annotated[Path, typer.Argument(help="A run that synthesises speech.")]
    text: Annotated[
        str | None, typer.Argument(help="The text; default: all of standard input.")
    ] = None
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The sound file: .wav, .flac or .ogg.")
    ] = Path("speech.wav")
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of the speech; default: the recipe's.")
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding", help="Encoding of standard input, if not UTF-8: latin-1, cp1252, …"
        ),
    ] = None
    trace: TraceFile = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def _standard_input(encoding: str | None) -> str:
    from heedful.inference.files import line_windows

    return "\n".join(line for window in line_windows("-", encoding=encoding) for line in window)


def run(options: SpeakOptions) -> None:
    """Run the command."""
    form = FORMS.get(options.output.suffix.lower())
    if form is None:
        raise UserError(f"{options.output}: the file name must end in {', '.join(FORMS)}")
    check_outputs(options.output, options.trace)
    if options.encoding is not None and options.text is not None:
        raise UserError("--encoding is for standard input; leave it out")
    use_threads(options.threads)
    from heedful.basics.files import atomic_file
    from heedful.basics.json_models import read_object
    from heedful.basics.settings import check
    from heedful.tasks.synthesis.examples import Said
    from heedful.tasks.synthesis.recipe import SpeakingSettings

    predictor = load_for("synthesis", options)
    if options.seed is not None:
        own = predictor.options.model_dump() | {"seed": options.seed}
        predictor.options = check(SpeakingSettings, own, "the options")
    text = _standard_input(options.encoding) if options.text is None else options.text
    if not text.strip():
        raise UserError("the text is empty; give one as an argument or on standard input")
    said = read_object(Said, {"text": text}, "the text")
    [found] = predictor.predict([said])
    if not found.alignments:
        raise UserError("the text has no character that the training texts have")
    with atomic_file(options.output) as file:
        file.write(found.file(form))
    if options.trace is not None:
        save_trace(predictor.trace(said), options.trace)
