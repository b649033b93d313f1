"""The options of ``heedful evaluate`` for single texts."""

from dataclasses import dataclass
from typing import Annotated

import typer

from heedful.tasks.options import Sentences


@dataclass(frozen=True)
class TextEvaluation:
    """What is scored, and how many of the worst mistakes are shown."""

    sentences: Sentences = 3
    head: Annotated[
        str | None,
        typer.Option(
            "--head", help="Of a run that learnt several things about texts, one of them."
        ),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding", help="Of --data of a run for single texts, if not the recipe's."
        ),
    ] = None
