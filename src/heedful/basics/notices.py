"""Notices to people: one line on standard error, each kind once, with a count."""

import re
import sys
from collections.abc import Callable


def notice(text: str) -> None:
    """Print one line to standard error, where it does not disturb a pipe.

    Whatever a caller leaves out, shortens or splits is said here, once, with how many.
    """
    print(f"heedful: {text}", file=sys.stderr, flush=True)


def once() -> Callable[[str], None]:
    """A :func:`notice` that says each kind of thing once: texts that differ in numbers are one."""
    said: set[str] = set()

    def say(text: str) -> None:
        kind = re.sub(r"[\d,]+", "#", text)
        if kind not in said:
            said.add(kind)
            notice(text)

    return say
