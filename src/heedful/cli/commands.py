"""Commands whose options are the fields of dataclasses."""

import inspect
from collections.abc import Callable, Iterable
from inspect import Parameter
from typing import Any, Protocol, TypeVar

import typer

from heedful.tasks.options import parameters

T = TypeVar("T")


class Machine(Protocol):
    """The options that set where a run is trained."""

    @property
    def device(self) -> str | None: ...
    @property
    def threads(self) -> int | None: ...
    @property
    def precision(self) -> str | None: ...


def machine_settings(options: Machine) -> list[str]:
    """The overrides of a recipe that ``--device``, ``--threads`` and ``--precision`` stand for."""
    given = {
        "device": options.device,
        "threads": options.threads,
        "precision": options.precision,
    }
    return [f"training.{name}={value}" for name, value in given.items() if value is not None]


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
