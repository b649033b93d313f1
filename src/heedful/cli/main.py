"""The command ``heedful``: its commands and those of all tasks; errors in one line."""

import os
import sys
from typing import Annotated, Any

import typer
import typer.core

from heedful.basics.errors import UserError

HELP = """Attention models: train one from your own data, run it, and look at what it attends to.

Examples:

    heedful demo

    heedful train --data memory.tmx --from en --to de --out runs/en-de

    heedful translate runs/en-de input.txt --output output.txt
"""


class _Commands(typer.core.TyperGroup):
    """The commands; what is interrupted, or has lost its reader, ends as shells expect it."""

    def invoke(self, ctx: Any) -> Any:
        # Here, below Click, whose versions make other exit codes of these two.
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            print("heedful: interrupted", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader (head, less) has gone; nothing is left to say, not even at the very end.
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


def _print_version(wanted: bool) -> None:
    if wanted:
        from heedful import __version__

        print(f"heedful {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
    plugin: Annotated[
        str | None,
        typer.Option(
            "--plugin",
            metavar="FILE.py",
            help="With any command: first run this Python file, which adds tasks or scores.",
        ),
    ] = None,
) -> None:
    """What stands before a command."""


def main() -> None:
    """Run the command line; the user's mistake is one line on standard error and exit code 2."""
    try:
        sys.argv[1:] = _with_plugins(sys.argv[1:])
        _register()
        app()
    except UserError as error:
        print(f"heedful: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _with_plugins(arguments: list[str]) -> list[str]:
    """Import the files of ``--plugin`` anywhere in the arguments; the arguments without them.

    Before the commands are made, because plug-ins add to what they offer.
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
    """Attach every command; their files import the heavy rooms only when they run."""
    from heedful.cli import (
        check,
        data,
        demo,
        evaluate,
        export,
        import_hf,
        info,
        plot,
        predict,
        serve,
        task_commands,
        train,
        tune,
        view,
    )

    app.info.help = f"{HELP}\n{_tasks()}"
    for command in (
        demo,
        train,
        tune,
        predict,
        task_commands,
        view,
        serve,
        evaluate,
        check,
        plot,
        info,
        data,
        import_hf,
        export,
    ):
        command.register(app)


def _tasks() -> str:
    """The tasks for ``--help``, each with the command that uses its runs."""
    from heedful.tasks.spec import specs

    return "Tasks: " + ", ".join(f"{spec.name} ({spec.command})" for spec in specs())


if __name__ == "__main__":
    main()
