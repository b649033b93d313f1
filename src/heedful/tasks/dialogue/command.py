"""``heedful chat``: a conversation with a model, or answers to dialogues from a pipe."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.basics.errors import UserError
from heedful.tasks.line_commands import Encoding, Output
from heedful.tasks.options import (
    Beam,
    Checkpoint,
    Device,
    SearchPrecision,
    Threads,
    opening_of,
    use_threads,
)

if TYPE_CHECKING:
    from heedful.data.readers.dialogues import Dialogue, Turn
    from heedful.decoding import SearchOptions
    from heedful.tasks.dialogue.responder import Responder


@dataclass(frozen=True)
class Chat:
    """Talk with a model that answers in dialogues.

    In a terminal, each line is your next turn; /help lists commands, Ctrl-C stops an answer, and
    Ctrl-D ends. Otherwise each line of FILE is the next turn of a conversation, or a whole dialogue
    as a JSON object with turns; an empty line begins a new conversation. There is one output line
    for each input line.

    Examples:

        heedful chat runs/orders

        heedful chat runs/orders --sample --temperature 0.7 --seed 3

        printf 'A tea, please.\\nMake it two.\\n' | heedful chat runs/orders

        heedful chat runs/orders dialogues.jsonl --json --output answers.jsonl
    """

    run: Annotated[Path, typer.Argument(help="A run that answers in dialogues.")]
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="One turn or JSON object per line; may be gzip- or xz-compressed; default or -: "
            "standard input.",
        ),
    ] = "-"
    encoding: Encoding = None
    output: Output = None
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object per line.")] = False
    beam: Beam = None
    length_penalty: Annotated[
        float | None,
        typer.Option(help="Exponent of the length penalty; higher values favour longer answers."),
    ] = None
    sample: Annotated[bool, typer.Option("--sample", help="Sample instead of beam search.")] = False
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; below 1 is less random.")
    ] = None
    top_k: Annotated[int | None, typer.Option(help="Sample from the K most probable tokens.")] = (
        None
    )
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the most probable tokens with this total probability."),
    ] = None
    seed: Annotated[int | None, typer.Option(help="Seed of sampling.")] = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: SearchPrecision = "float32"


def run(options: Chat) -> None:
    """Run the command."""
    from heedful.inference.files import check_output

    check_output(options.output)
    use_threads(options.threads)
    from heedful.tasks.dialogue.endpoints import options_of
    from heedful.tasks.dialogue.responder import load_responder

    responder = load_responder(options.run, **opening_of(options))
    search = options_of(responder.options, options, lambda name: f"--{name.replace('_', '-')}")
    if options.file == "-" and sys.stdin.isatty():
        if options.json or options.output is not None:
            raise UserError("--json and --output are for dialogues from a file or a pipe")
        from heedful.tasks.dialogue.conversation import Conversation

        Conversation(responder, search).run()
        return
    _answer_lines(responder, search, options)


def _answer_lines(responder: "Responder", search: "SearchOptions", options: Chat) -> None:
    """Answer each line of a file."""
    from heedful.inference.files import line_windows, write_lines

    lines = (
        line for window in line_windows(options.file, encoding=options.encoding) for line in window
    )
    written = _answers(responder, search, lines, as_json=options.json)
    write_lines(([line] for line in written), options.output, "answer")


def _answers(
    responder: "Responder",
    search: "SearchOptions",
    lines: Iterator[str],
    *,
    as_json: bool,
) -> Iterator[str]:
    from json import dumps

    from heedful.data.readers.dialogues import Turn

    turns: list[Turn] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            turns = []
            yield ""
            continue
        _refuse_names(line, responder, number)
        dialogue = _dialogue(line, turns, responder.partner, f"line {number}")
        try:
            answer = responder.answer(dialogue, search)
        except UserError as error:
            raise UserError(f"line {number}: {error}") from error
        turns = [*dialogue.turns, Turn.model_construct(speaker=responder.speaker, text=answer.text)]
        responder.warn_of([answer])
        yield dumps(answer.to_json(), ensure_ascii=False) if as_json else answer.text


def _refuse_names(line: str, responder: "Responder", number: int) -> None:
    """Raise UserError for a line with the name of a speaker, as in files for training."""
    for name in (responder.partner, responder.speaker):
        if line.lstrip().startswith(f"{name}:"):
            raise UserError(
                f"line {number} begins with '{name}:', but each line is a turn of "
                f"{responder.partner}, without a name; for dialogues with turns of both, give a "
                "JSON object with turns on each line"
            )


def _dialogue(line: str, turns: "list[Turn]", partner: str, where: str) -> "Dialogue":
    """The dialogue of a line: a JSON object, or the turns so far and the line as the next one."""
    from heedful.basics.json_models import read_object
    from heedful.data.readers.dialogues import Dialogue, Turn

    if line.lstrip().startswith("{"):
        return read_object(Dialogue, line, where)
    return Dialogue.model_construct(turns=[*turns, Turn(speaker=partner, text=line.strip())])
