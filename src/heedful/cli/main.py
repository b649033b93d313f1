"""The command ``heedful``: one small file a command, errors in one line, exit code 2 for the user's."""

import os
import sys

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


def main() -> None:
    """Run the command line; a mistake of the user is one line on standard error, never a traceback."""
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


if __name__ == "__main__":
    main()
