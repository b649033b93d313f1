"""The options of ``heedful evaluate`` for single texts."""

from dataclasses import dataclass
from typing import Annotated

import typer

from heedful.tasks.options import Sentences


@dataclass(frozen=True)
class TextEvaluation:
    """What to score, and how many of the worst errors to show."""

    sentences: Sentences = 3
    head: Annotated[
        str | None,
        typer.Option("--head", help="Which head of a multi-task run; default: all."),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding", help="Encoding of --data for single texts; default: the recipe's."
        ),
    ] = None
