"""Progress bars of long jobs, with rate and remaining time; on a terminal only."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def progress(text: str, total: int | None, unit: str) -> Iterator["Advance"]:
    """Show a bar on standard error while the block runs, if it is a terminal.

    Example:
        >>> with progress("counting", 3, "numbers") as advance:
        ...     for _ in range(3):
        ...         advance(1)
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        yield Advance(bar, text, total, unit)


class Advance:
    """Call it with the number of units done since the last call."""

    def __init__(self, bar: Progress, text: str, total: int | None, unit: str) -> None:
        self._bar = bar
        self._unit = unit
        self._task = bar.add_task(text, total=total, rate="")

    def __call__(self, count: int) -> None:
        self._bar.advance(self._task, count)
        speed = self._bar.tasks[0].speed
        if speed:
            self._bar.update(self._task, rate=f"{speed:,.0f} {self._unit}/s")
