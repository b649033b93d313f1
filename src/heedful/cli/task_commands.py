"""The commands that tasks declare, such as ``heedful translate`` and ``heedful classify``."""

from typing import Any

import typer

from heedful.basics.errors import UserError
from heedful.cli.commands import add_command
from heedful.tasks.spec import specs


def register(app: typer.Typer) -> None:
    """Add the commands of all tasks.

    Raises:
        UserError: two tasks have commands with the same name.
    """
    owners: dict[str, str] = {}
    for spec in specs():
        for command in spec.commands(_load):
            other = owners.setdefault(command.name, spec.name)
            if other != spec.name:
                raise UserError(
                    f"the tasks '{other}' and '{spec.name}' both have a command {command.name}; "
                    "rename one of them"
                )
            add_command(app, command.name, command.options, command.run)


def _load(*runs: Any, **how: Any) -> Any:
    from heedful.interop.engines import load_with_engine

    return load_with_engine(*runs, **how)
