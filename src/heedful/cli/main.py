"""The command ``heedful``: one small file a command, the user's errors in one line."""

import os
import sys
from typing import Annotated

import typer

from heedful.basics.errors import UserError

app = typer.Typer(
    name="heedful",
    help="Attention models: train one from your own data, run it, and look at what it attends to.",
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
) -> None:
    """What stands before a command."""


def main() -> None:
    """Run the command line; the user's mistake is one line on standard error and exit code 2."""
    _register()
    try:
        app()
    except UserError as error:
        print(f"heedful: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has gone; nothing is left to say, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _register() -> None:
    """Attach every command; their files import the heavy rooms only when they run."""
    from heedful.cli import data, demo, evaluate, info, plot, train, translate

    for command in (demo, train, translate, evaluate, plot, info, data):
        command.register(app)


if __name__ == "__main__":
    main()
