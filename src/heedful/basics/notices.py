"""Notices to people: one line on standard error, each kind once, with a count."""

import sys


def notice(text: str) -> None:
    """Print one line to standard error, where it does not disturb a pipe.

    Whatever a caller leaves out, shortens or splits is said here, once, with how many.
    """
    print(f"heedful: {text}", file=sys.stderr, flush=True)
