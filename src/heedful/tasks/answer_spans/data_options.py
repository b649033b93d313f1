"""The options of ``heedful train`` for tables of questions."""

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class QuestionTable:
    """The columns of a table of questions; files in SQuAD's format need none."""

    context: Annotated[
        str | None, typer.Option("--context", help="answer-spans: column of the text.")
    ] = None
    question: Annotated[
        str | None, typer.Option("--question", help="answer-spans: column of the question.")
    ] = None
    answer: Annotated[
        str | None,
        typer.Option(
            "--answer", help="answer-spans: column of the answer; empty if the text has none."
        ),
    ] = None
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            help="answer-spans: column with the place of the answer's first character, from 0; "
            "default: where the answer occurs first.",
        ),
    ] = None
