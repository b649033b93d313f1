"""``heedful info``: what a run is, was trained on and scored."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.commands import add_command


@dataclass(frozen=True)
class Info:
    """Say what a run is, what it was trained on, and how it scored.

    Example:

        heedful info runs/en-de
    """

    run: Annotated[Path, typer.Argument(help="A run's folder.")]
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object.")] = False
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes",
            help="Take the run's files as they are now: record their hashes anew.",
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
