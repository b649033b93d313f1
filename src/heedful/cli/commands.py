"""Commands whose options are the fields of dataclasses."""

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from heedful.basics.errors import UserError
from heedful.tasks.options import parameters

T = TypeVar("T")

DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Base folder of the recipe's relative data paths.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Change one setting: key=value; repeatable.")
]
TrainingDevice = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or mps.")]
TrainingPrecision = Annotated[
    str | None,
    typer.Option("--precision", help="auto, float32, bfloat16, or float16 (CUDA)."),
]


class Machine(Protocol):
    """The options that set where a run is trained."""

    @property
    def device(self) -> str | None: ...
    @property
    def threads(self) -> int | None: ...
    @property
    def precision(self) -> str | None: ...


class RecipeOptions(Machine, Protocol):
    """A recipe and the options that change it."""

    @property
    def recipe(self) -> str: ...
    @property
    def overrides(self) -> list[str] | None: ...


def refuse_given(options: Any, names: Collection[str], what: str) -> None:
    """Raise UserError if one of the options was given, because it has no effect.

    Args:
        options: an instance of a dataclass of options.
        names: fields that have no effect.
        what: what the command does, for the message.
    """
    for field in fields(options):
        if field.name in names and getattr(options, field.name) != field.default:
            flag = _flag(type(options), field.name)
            raise UserError(f"{flag} has no effect with {what}; leave it out")


def refuse_unused(options: Any, used: Collection[str], what: str) -> None:
    """As :func:`refuse_given`, for all fields but those that are used."""
    refuse_given(options, {field.name for field in fields(options)} - set(used), what)


def _flag(kind: type, name: str) -> str:
    """The name of an option. In an annotation, typer keeps the first name as the default."""
    for one in get_args(get_type_hints(kind, include_extras=True)[name]):
        if isinstance(one, OptionInfo) and str(one.default).startswith("--"):
            return str(one.default)
    return f"--{name.replace('_', '-')}"


def machine_settings(options: Machine) -> list[str]:
    """The overrides of a recipe that ``--device``, ``--threads`` and ``--precision`` stand for."""
    given = {
        "device": options.device,
        "threads": options.threads,
        "precision": options.precision,
    }
    return [f"training.{name}={value}" for name, value in given.items() if value is not None]


def changed_recipe(options: RecipeOptions) -> tuple[str, dict[str, Any]]:
    """Where the recipe is, and its tables with the changes of the options.

    Raises:
        UserError: there is no such recipe, it is not TOML, or a change is not key=value.
    """
    from heedful.runs.recipe import find_recipe, read_recipe, with_overrides

    path = find_recipe(options.recipe)
    changes = [*(options.overrides or []), *machine_settings(options)]
    return str(path), with_overrides(read_recipe(path), changes)


def merge_parameters(groups: Iterable[list[Parameter]]) -> list[Parameter]:
    """Concatenate lists of parameters; of parameters with the same name, keep the first."""
    found: dict[str, Parameter] = {}
    for one in (one for group in groups for one in group):
        found.setdefault(one.name, one)
    return list(found.values())


def add_command(
    app: typer.Typer,
    name: str,
    options: type[T],
    run: Callable[[T], None],
    *,
    no_args_is_help: bool = True,
) -> None:
    """Add a command; its options are the fields of a dataclass, whose docstring is the help.

    Args:
        app: the application or group that the command is added to.
        name: the name of the command.
        options: the dataclass.
        run: called with an instance of it.
        no_args_is_help: whether the command prints its help if nothing is given.
    """
    add_function(
        app,
        name,
        inspect.getdoc(options) or "",
        parameters(options),
        lambda values: run(options(**values)),
        no_args_is_help=no_args_is_help,
    )


def add_function(
    app: typer.Typer,
    name: str,
    help_text: str,
    own: list[Parameter],
    run: Callable[[dict[str, Any]], None],
    *,
    no_args_is_help: bool = True,
) -> None:
    """Like :func:`add_command`, with any parameters; ``run`` gets a dict of name → value."""

    def command(**values: Any) -> None:
        run(values)

    command.__name__ = name
    command.__doc__ = inspect.cleandoc(help_text)
    command.__annotations__ = {one.name: one.annotation for one in own}
    command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    app.command(name=name, no_args_is_help=no_args_is_help)(command)
