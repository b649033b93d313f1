"""The command line ``heedful``: all commands, plug-ins, and error messages of one line."""

import os
import sys
from typing import Annotated, Any

import typer
import typer.core

from heedful.basics.errors import UserError
from heedful.basics.notices import notice

HELP = """Train attention models on your own data, use them, and inspect their attention.

Examples:

    heedful demo

    heedful train --data memory.tmx --from en --to de --out runs/en-de

    heedful translate runs/en-de input.txt --output output.txt
"""


class _Commands(typer.core.TyperGroup):
    """All commands, with the exit codes that shells expect after Ctrl-C and broken pipes."""

    def invoke(self, ctx: Any) -> Any:
        # Caught below Click, whose versions return different exit codes for both.
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            print("heedful: interrupted", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader (head, less) is closed: suppress Python's message at exit as well.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None
        return result


app = typer.Typer(
    name="heedful",
    cls=_Commands,
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from heedful import __version__

        print(f"heedful {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    plugin: Annotated[
        str | None,
        typer.Option(
            "--plugin",
            metavar="FILE.py",
            help="Load a Python file that adds tasks, models or scores; works with every command.",
        ),
    ] = None,
) -> None:
    """Options before the command."""


def main() -> None:
    """Run the command line; a ``UserError`` is printed in one line, with exit code 2."""
    try:
        sys.argv[1:] = _with_plugins(sys.argv[1:])
        _register()
        app()
    except UserError as error:
        notice(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _with_plugins(arguments: list[str]) -> list[str]:
    """Load the files of every ``--plugin`` and return the remaining arguments.

    This happens before commands are registered, because plug-ins add commands and options.
    """
    if "--plugin" not in arguments and not any(one.startswith("--plugin=") for one in arguments):
        return arguments
    from heedful.runs.registry import load_file

    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, path = argument.partition("=")
        if argument == "--":
            return [*rest, argument, *remaining]
        if name != "--plugin":
            rest.append(argument)
            continue
        file = path if equals else next(remaining, None)
        if file is None:
            raise UserError("--plugin needs a file: --plugin my_task.py")
        load_file(file)
    return rest


def _register() -> None:
    """Register all commands. Their modules import PyTorch only when a command runs."""
    from heedful.cli import (
        calibrate,
        check,
        compare,
        data,
        demo,
        evaluate,
        export,
        import_hf,
        info,
        learning_rate,
        memory,
        plot,
        predict,
        serve,
        study,
        task_commands,
        train,
        tune,
        view,
    )

    app.info.help = f"{HELP}\n{_tasks()}"
    # A process that calls main() again would have all commands twice.
    app.registered_commands.clear()
    app.registered_groups.clear()
    for command in (
        demo,
        train,
        tune,
        learning_rate,
        compare,
        predict,
        task_commands,
        view,
        serve,
        evaluate,
        calibrate,
        check,
        memory,
        plot,
        study,
        info,
        data,
        import_hf,
        export,
    ):
        command.register(app)


def _tasks() -> str:
    """The list of tasks for ``--help``, each with the command that uses its runs."""
    from heedful.tasks.spec import specs

    return "Tasks: " + ", ".join(f"{spec.name} ({spec.command})" for spec in specs())


if __name__ == "__main__":
    main()
