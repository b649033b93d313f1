"""``heedful info``: the model, the training data and the scores of a run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.commands import add_command


@dataclass(frozen=True)
class Info:
    """Show the model, the training data and the scores of a run.

    Example:

        heedful info runs/en-de
    """

    run: Annotated[Path, typer.Argument(help="The run.")]
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes",
            help="Accept the run's files as they are now: record new hashes.",
        ),
    ] = False


def _run(options: Info) -> None:
    """Run the command."""
    from heedful.runs.opening import accept_changes as accept
    from heedful.runs.summary import describe_run, summarise_run

    if options.accept_changes:
        accept(options.run)
    summary = summarise_run(options.run)
    print(
        json.dumps(summary, ensure_ascii=False, indent=1)
        if options.as_json
        else describe_run(summary)
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "info", Info, _run)
