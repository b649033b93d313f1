"""``heedful ask``: the answer to each question, found in a text."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
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
    from heedful.inference.span_reader import Question, SpanAnswer
    from heedful.tasks.answer_spans.predictor import SpanPredictor

_AT_ONCE = 256
_IGNORED = ("answer", "answers", "start", "id", "title", "is_impossible")

Questions = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Lines with a question, a TAB and a text; or JSON lines with question and context; or "
        "a file in SQuAD's format; or, with --context, a question per line. Default or -: "
        "standard input.",
    ),
]


@dataclass(frozen=True)
class Ask:
    """Answer questions with parts of a text: one line for each question, in the same order.

    The line is empty if the text has no answer, or if the input line is empty.

    Examples:

        echo "When did it open?" | heedful ask runs/spans --context house.txt

        heedful ask runs/spans questions.jsonl --json --output answers.jsonl

        heedful ask runs/spans dev-v2.0.json --predictions predictions.json --output answers.txt
    """

    run: Annotated[Path, typer.Argument(help="A run that finds answers in texts.")]
    file: Questions = "-"
    context: Annotated[
        Path | None,
        typer.Option("--context", help="A file with the text that all questions are about."),
    ] = None
    encoding: Encoding = None
    output: Output = None
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            help="Also write SQuAD's official prediction file; FILE must be in SQuAD's format.",
        ),
    ] = None
    scores: Annotated[
        bool, typer.Option("--scores", help="Append a TAB and the probability of the answer.")
    ] = False
    json: Json = False
    trace: TraceFile = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: Ask) -> None:
    """Run the command."""
    from heedful.data.readers.questions import check_names
    from heedful.inference.files import write_lines

    check_outputs(options.output, options.trace, predictions=options.predictions)
    if options.json and options.scores:
        raise UserError("--json includes the scores; leave out --scores")
    use_threads(options.threads)
    predictor = load_for("answer-spans", options)
    names, asked = _read(options)
    if options.predictions is not None and names is None:
        raise UserError("--predictions needs a file in SQuAD's format, with identifiers")
    if options.predictions is not None and names is not None:
        check_names(names, options.file)
    if options.trace is not None:
        asked = with_trace(asked, predictor.trace, options.trace, "question")
    kept: list[str] = []
    write_lines(_lines(predictor, asked, options, kept), options.output, "answer")
    if options.predictions is not None and names is not None:
        _save(options.predictions, names, kept)


def _read(options: Ask) -> "tuple[list[str] | None, Iterator[Question | None]]":
    """The names of the questions, in SQuAD's format; and each question, None for an empty line."""
    from heedful.data.readers.opening import STANDARD_INPUT, open_input
    from heedful.data.readers.questions import is_squad, read_asked
    from heedful.data.readers.text import lines_of

    if options.file == str(options.context) == STANDARD_INPUT:
        raise UserError("questions and --context are both standard input; give one as a file")
    text = _text_of(options)
    with ExitStack() as opened:
        file = opened.enter_context(open_input(options.file))
        if is_squad(file, options.encoding):
            if text is not None:
                raise UserError(
                    f"{file.name} has SQuAD's format, with a text for each question; leave out "
                    "--context"
                )
            found = read_asked(file, options.encoding)
            return [name for name, _, _ in found], (_question(*one[1:]) for one in found)
        rest = opened.pop_all()

    def lines() -> Iterator[str]:
        with rest:
            yield from lines_of(file, options.encoding)

    return None, _asked(lines(), file.name, text)


def _question(question: str, context: str) -> "Question":
    from heedful.inference.span_reader import Question

    return Question(question, context)


def _text_of(options: Ask) -> str | None:
    """The text that all questions are about."""
    from heedful.data.readers.opening import open_input
    from heedful.data.readers.text import lines_of

    if options.context is None:
        return None
    with open_input(options.context) as file:
        text = "\n".join(lines_of(file, options.encoding))
    if not text.strip():
        raise UserError(f"{options.context} is empty; give a file with the text")
    return text


def _asked(lines: Iterable[str], name: str, context: str | None) -> "Iterator[Question | None]":
    """The questions of lines; None for an empty line.

    Raises:
        UserError: a line is no question, or has no text.
    """
    from heedful.basics.json_models import read_object
    from heedful.data.readers.labelled import objects_of_lines
    from heedful.tasks.answer_spans.examples import AskedOfText

    for number, line in enumerate(lines, start=1):
        where = f"{name}:{number}"
        question, tab, text = line.partition("\t")
        if not line.strip():
            yield None
        elif line.lstrip().startswith("{"):
            ((_, found),) = objects_of_lines(where, [line])
            own = {key: found[key] for key in found or {} if key not in _IGNORED} if found else {}
            if context is not None:
                _refuse_two_texts("context" in own, where)
                own["context"] = context
            asked = read_object(AskedOfText, own, where)
            yield _question(asked.question, asked.context)
        elif context is not None:
            _refuse_two_texts(bool(tab), where)
            yield _question(line, context)
        else:
            if number == 1 and {"question", "context"} <= set(line.split("\t")):
                raise UserError(
                    f"{where}: this is the header of a table; give lines with a question, a TAB "
                    "and a text, or JSON lines with question and context"
                )
            if not tab:
                raise UserError(
                    f"{where}: no TAB between a question and its text; or give one text for all "
                    "questions with --context FILE"
                )
            for what, own_text in (("question", question), ("text", text)):
                if not own_text.strip():
                    raise UserError(f"{where}: the {what} is empty; give a question and a text")
            yield _question(question, text)


def _refuse_two_texts(has_text: bool, where: str) -> None:
    if has_text:
        raise UserError(
            f"{where}: this line has a text of its own; leave out --context, or give lines with a "
            "question only"
        )


def _lines(
    predictor: "SpanPredictor",
    asked: "Iterator[Question | None]",
    options: Ask,
    kept: list[str],
) -> Iterator[list[str]]:
    every = enumerate(asked, start=1)
    while some := list(islice(every, _AT_ONCE)):
        numbers = [number for number, one in some if one is not None]
        questions = [one for _, one in some if one is not None]
        found = iter(predictor.predict(questions, numbers=numbers))
        answers = [None if one is None else next(found) for _, one in some]
        if options.predictions is not None:
            kept += [one.answer for one in answers if one is not None]
        yield ["" if one is None else _line(one, options) for one in answers]


def _line(answer: "SpanAnswer", options: Ask) -> str:
    import json

    if options.json:
        return json.dumps(answer.to_json(), ensure_ascii=False)
    text = " ".join(answer.answer.split())
    if options.scores and answer.best is not None:
        return f"{text}\t{answer.best.probability:.4f}"
    return text


def _save(path: Path, names: list[str], answers: list[str]) -> None:
    from heedful.basics.files import atomic_file
    from heedful.data.readers.questions import write_predictions

    with atomic_file(path) as file:
        file.write(write_predictions(dict(zip(names, answers, strict=True))).encode("utf-8"))
