"""``heedful study``: studies of what attention computes, with tables and figures."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.basics.errors import UserError
from heedful.cli.commands import add_command
from heedful.tasks.options import Device, Threads, flag, parameters, use_threads

MOST_SEEDS = 1000


@dataclass(frozen=True)
class StudyCommand:
    """Answer a question about what attention computes; without a name, list the studies.

    A study trains the models that it needs in --out (rerun the command to resume), measures, and
    writes a page, its figures as JSON, and pictures.

    Examples:

        heedful study

        heedful study induction --out studies/induction

        heedful study addition --out studies/addition --seeds 3 --device cuda
    """

    name: Annotated[str | None, typer.Argument(help="The study.")] = None
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the report and the runs.")
    ] = None
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of data, if the study needs any.")
    ] = None
    run: Annotated[
        list[Path] | None, typer.Option("--run", help="A trained run to study; repeatable.")
    ] = None
    seeds: Annotated[int, typer.Option("--seeds", help="Number of trainings of each model.")] = 1
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Try the study in seconds; the figures mean nothing."),
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result, or the list, as JSON.")
    ] = False
    device: Device = "auto"
    threads: Threads = None


def _run(options: StudyCommand) -> None:
    """Run the command."""
    if options.name is None:
        _list(options)
        return
    if options.out is None:
        raise UserError("--out FOLDER is missing: give the folder of the study")
    if not 1 <= options.seeds <= MOST_SEEDS:
        raise UserError(f"--seeds {options.seeds}: give a number from 1 to {MOST_SEEDS:,}")
    from heedful.studies.catalogue import study_named
    from heedful.studies.report import run_study
    from heedful.studies.study import StudyOptions

    use_threads(options.threads)
    given = StudyOptions(
        out=options.out,
        data=options.data,
        runs=tuple(options.run or ()),
        seeds=tuple(range(1, options.seeds + 1)),
        threads=options.threads,
        device=options.device,
        quick=options.quick,
        echo=lambda line: print(line, file=sys.stderr, flush=True),
    )
    report = run_study(study_named(options.name), given)
    if options.as_json:
        print(json.dumps(report, ensure_ascii=False))
        return
    print("\n".join(report["found"]))
    print(f"written: {options.out / options.name}.md")


def _list(options: StudyCommand) -> None:
    from heedful.studies.catalogue import studies
    from heedful.studies.study import as_options

    given = {
        flag(one): getattr(options, one.name) != one.default
        for one in parameters(StudyCommand)
        if one.name not in ("name", "as_json")
    }
    if extra := [name for name, is_given in given.items() if is_given]:
        raise UserError(f"{extra[0]} needs the name of a study; `heedful study` lists them")
    found = studies()
    if options.as_json:
        fields = ("name", "title", "question")
        rows = [{key: getattr(one, key) for key in (*fields, "needs", "takes")} for one in found]
        print(json.dumps(rows, ensure_ascii=False))
        return
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        print(f"{one.name:<{width}}  {one.title}")
        for key, what in one.needs.items():
            print(f"{'':<{width}}  needs {as_options(key)}: {what}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "study", StudyCommand, _run, no_args_is_help=False)
