"""``heedful answer``: the answer to each question about a story, and the facts that were read."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.basics.errors import UserError
from heedful.tasks.line_commands import (
    Encoding,
    Json,
    Output,
    TraceFile,
    check_outputs,
    with_trace,
)
from heedful.tasks.options import Checkpoint, Device, Precision, Threads, load_for, use_threads

if TYPE_CHECKING:
    from heedful.tasks.answer.examples import Asked
    from heedful.tasks.answer.predictor import Answer, StoryPredictor

_AT_ONCE = 64
_IGNORED = ("answer", "supports")
_NUMBER = re.compile(r"(\d+)\s+")

Stories = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="JSON lines with story and question; or a text with a fact or a question (with ? at "
        "its end) on each line and an empty line between stories; default or -: standard input.",
    ),
]


@dataclass(frozen=True)
class AnswerOptions:
    """Answer questions about stories: one line for each question, in the same order.

    Examples:

        printf 'Mary went to the garden.\\nWhere is Mary?\\n' | heedful answer runs/stories

        heedful answer runs/stories stories.txt --facts

        heedful answer runs/stories questions.jsonl --json --output answers.jsonl
    """

    run: Annotated[Path, typer.Argument(help="A run that answers questions about stories.")]
    file: Stories = "-"
    encoding: Encoding = None
    output: Output = None
    facts: Annotated[
        bool,
        typer.Option("--facts", help="Append a TAB and the fact that each hop reads most."),
    ] = False
    json: Json = False
    trace: TraceFile = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: AnswerOptions) -> None:
    """Run the command."""
    check_outputs(options.output, options.trace)
    if options.json and options.facts:
        raise UserError("--json includes the facts; leave out --facts")
    use_threads(options.threads)
    from heedful.inference.files import line_windows, write_lines

    predictor = load_for("answer", options)
    windows = line_windows(options.file, encoding=options.encoding)
    lines = (line for window in windows for line in window)
    asked = read_questions(lines, "standard input" if options.file == "-" else options.file)
    if options.trace is not None:
        asked = with_trace(asked, predictor.trace, options.trace, "question")
    write_lines(_lines(predictor, asked, options), options.output, "answer")


def read_questions(lines: Iterable[str], name: str) -> Iterator["Asked | None"]:
    """The questions of a file: JSON lines, or facts and questions on lines of their own.

    In the second format a line that ends in ``?`` is a question about the facts before it, and an
    empty line begins a new story. Lines may be numbered as in the bAbI tasks, and have answers,
    which are ignored; 1 then begins a new story.

    Args:
        lines: of the file.
        name: of the file, for messages.

    Yields:
        Each question; None for an empty line between JSON objects.

    Raises:
        UserError: a line is no question and no fact; a question has no story; facts at the end of a
            story have no question.
    """
    every, before = iter(lines), []
    for line in every:
        before.append(line)
        if line.strip():
            break
    first = before[-1].strip() if before else ""
    joined = chain(before, every)
    if first.startswith("{"):
        yield from _objects(name, joined)
    else:
        yield from _told(name, joined, numbered=_NUMBER.match(first) is not None)


def _objects(name: str, lines: Iterable[str]) -> Iterator["Asked | None"]:
    from heedful.basics.json_models import read_object
    from heedful.data.readers.labelled import objects_of_lines
    from heedful.tasks.answer.examples import Asked

    for where, found in objects_of_lines(name, lines):
        if found is None:
            yield None
            continue
        yield read_object(Asked, {k: found[k] for k in found if k not in _IGNORED}, where)


def _told(name: str, lines: Iterable[str], *, numbered: bool) -> Iterator["Asked"]:
    from heedful.tasks.answer.examples import Asked

    facts: list[str] = []
    asked = True
    for number, line in enumerate(lines, start=1):
        where, text = f"{name}:{number}", line.split("\t")[0].strip()
        match = _NUMBER.match(text) if numbered else None
        if match is not None:
            text = text[match.end() :]
        if not text or (match is not None and match[1] == "1"):
            if not asked:
                raise UserError(f"{where}: the story before it has no question")
            facts, asked = [], True
        if text.endswith("?"):
            if not facts:
                raise UserError(f"{where}: a question without a story; write its facts above it")
            asked = True
            yield Asked(story=list(facts), question=text)
        elif text:
            facts.append(text)
            asked = False
    if not asked:
        raise UserError(f"{name}: the last fact has no question after it; a question ends in '?'")


def _lines(
    predictor: "StoryPredictor", asked: Iterator["Asked | None"], options: AnswerOptions
) -> Iterator[list[str]]:
    while some := list(islice(asked, _AT_ONCE)):
        found = iter(predictor.predict([one for one in some if one is not None]))
        yield ["" if one is None else _line(next(found), options) for one in some]


def _line(answer: "Answer", options: AnswerOptions) -> str:
    import json

    if options.json:
        return json.dumps(answer.to_json(), ensure_ascii=False)
    if not options.facts:
        return answer.answer
    read = [f"{hop[0].number} {hop[0].text} ({hop[0].weight:.2f})" for hop in answer.hops]
    return f"{answer.answer}\t{' → '.join(read)}"
