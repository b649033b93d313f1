"""``heedful train``: train a run from a recipe or directly from a corpus."""

from dataclasses import dataclass, fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.cli.commands import (
    Overrides,
    TrainingDevice,
    TrainingPrecision,
    add_function,
    machine_settings,
    merge_parameters,
)
from heedful.cli.launching import exit_codes, launch, require_number
from heedful.tasks.options import Threads, parameters
from heedful.tasks.spec import TaskSpec, specs

HELP = """Train a model; rerun the command to resume exactly where it stopped.

Train from a recipe, or from --data alone: then sizes, vocabulary, steps and held-out data are
chosen from the corpus, and the chosen recipe is written to the run.

Examples:

    heedful train --data memory.tmx --from en --to de --out runs/en-de

    heedful train multi30k-transformer-tiny --data multi30k --out runs/multi30k

    heedful train recipe.toml --out runs/small --set training.max_steps=2000

    heedful train recipe.toml --out runs/large --processes 4 --restarts 5

    heedful train --task align --data corpus.tsv --from en --to es --out runs/aligner

    heedful train --task classify --data my.csv --text body --label team --out runs/teams
"""


@dataclass(frozen=True)
class _Options:
    """The parameters after the options of the tasks."""

    overrides: Overrides = None
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--start-from",
            help="Start from this run's weights and vocabulary, to adapt it to new data.",
        ),
    ] = None
    device: TrainingDevice = None
    threads: Threads = None
    precision: TrainingPrecision = None
    profile: Annotated[
        int,
        typer.Option(
            "--profile", help="Profile this many steps after a warm-up; written to RUN/profile."
        ),
    ] = 0
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes", help="Number of processes of this machine that train together."
        ),
    ] = None
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts",
            help="With --processes: how often to start again from the last checkpoint after a "
            "process was killed.",
        ),
    ] = 0


def _trainable() -> dict[str, TaskSpec]:
    """Value of --task → task, for tasks that can be trained without a recipe; default first."""
    return {spec.train_option: spec for spec in specs() if spec.train_option}


def _task(value: str) -> str:
    if value not in _trainable():
        raise typer.BadParameter(f"'{value}' is not one of {', '.join(_trainable())}")
    return value


def _first() -> list[Parameter]:
    """The parameters before the options of the tasks; their help lists the tasks."""
    tasks = _trainable()
    default, *others = tasks
    corpus = tasks[default].corpus
    own = [
        f"with --task {name} {tasks[name].corpus}"
        for name in others
        if tasks[name].corpus not in ("", corpus)
    ]
    about = [f" {name} {spec.train_about}." for name, spec in tasks.items() if spec.train_about]

    def parameter(name: str, kind: Any, option: Any) -> Parameter:
        annotation = Annotated[kind, option]
        return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)

    return [
        parameter(
            "recipe",
            str | None,
            typer.Argument(
                help="A TOML recipe, or the name of a built-in recipe.", metavar="RECIPE"
            ),
        ),
        parameter(
            "out",
            Path | None,
            typer.Option("--out", help="The folder of the run; an unfinished run is resumed."),
        ),
        parameter(
            "data",
            list[str] | None,
            typer.Option(
                "--data",
                help="With a recipe: the base folder of its relative data paths. Without: "
                f"{'; '.join([corpus, ', '.join(own)])}.",
            ),
        ),
        parameter(
            "task",
            str | None,
            typer.Option(
                "--task",
                parser=_task,
                metavar=f"[{'|'.join(tasks)}]",
                help=f"Without a recipe: the task; default: {default}.{''.join(about)}",
            ),
        ),
    ]


def _run(values: dict[str, Any]) -> None:
    """Run the command, in several processes if they are asked for."""
    processes, restarts = values.pop("processes"), values.pop("restarts")
    if processes is not None:
        require_number("--processes", processes, 1)
    require_number("--restarts", restarts, 0)
    from heedful.training.process_environment import is_launched

    if is_launched():
        if processes is not None:
            raise UserError(
                "leave out --processes: this process was started by torchrun or another launcher, "
                "which has chosen their number"
            )
        with exit_codes():
            _train(values)
    elif processes is not None and (processes > 1 or restarts):
        raise typer.Exit(launch(processes, restarts))
    elif restarts:
        raise UserError(
            "--restarts needs --processes N; torchrun has its own option --max-restarts"
        )
    else:
        _train(values)


def _train(values: dict[str, Any]) -> None:
    """Train in this process, together with the others of its launcher."""
    from heedful.training.processes import join

    processes = join()
    with processes.together():
        processes.require_same(values, "option ")
        finished = _trained(values)
    if not finished:
        raise typer.Exit(130)


def _trained(values: dict[str, Any]) -> bool:
    """Train; returns False if interrupted."""
    from heedful.tasks.commands import choose_task, settings_of, train_from_command

    names = [one.name for one in fields(_Options) if one.name in values]
    options = _Options(**{name: values.pop(name) for name in names})
    recipe, out, data, task = (values.pop(one.name) for one in _first())
    if out is None:
        raise UserError("--out RUN is missing: give the folder of the run")
    changes = [*(options.overrides or []), *machine_settings(options)]
    by_option = _trainable()
    if recipe is not None and task is not None and not by_option[task].takes_recipe:
        raise UserError(
            f"--task {task} chooses its own recipe: leave out the recipe, or set its task"
        )
    chosen = recipe is None and not (out / "run.json").exists()
    asked = choose_task(task, options.start_from) if chosen else task
    given, choose = settings_of(asked or next(iter(by_option)), values, changes, chosen=chosen)
    how: dict[str, Any] = {
        "given": given,
        "overrides": changes,
        "start_from": options.start_from,
        "task": task,
        "choose": choose,
        "profile": options.profile,
    }
    if recipe is None and task is not None:
        return by_option[task].train_corpus(train_from_command, out, data or [], **how)
    return train_from_command(recipe, out, data or [], **how)


def register(app: typer.Typer) -> None:
    """Add the command."""
    tasks = [parameters(spec.data_options()) for spec in _trainable().values()]
    add_function(
        app, "train", HELP, merge_parameters([_first(), *tasks, parameters(_Options)]), _run
    )
