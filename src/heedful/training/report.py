"""The messages of training: a progress bar on a terminal, lines elsewhere."""

import contextlib
import math
import sys
import time
import unicodedata
from collections.abc import Callable
from types import TracebackType
from typing import IO, Self, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from heedful.training.protocol import Sample

Later = Callable[[], float | None]
"""Returns the estimated seconds of the trainings that follow this one; None if unknown."""


class _StandardError:
    """Standard error; output is dropped if it cannot be written because the terminal was closed."""

    @property
    def _file(self) -> TextIO:
        # A live progress bar replaces standard error.
        return cast(TextIO, getattr(sys.stderr, "rich_proxied_file", sys.stderr))

    @property
    def encoding(self) -> str:
        """The encoding of the stream."""
        return self._file.encoding

    def write(self, text: str) -> int:
        """Write ``text``, or drop it."""
        with contextlib.suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the buffer."""
        with contextlib.suppress(OSError):
            self._file.flush()

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._file.isatty()

    def fileno(self) -> int:
        """The file descriptor, which rich needs for the width of the terminal."""
        return self._file.fileno()


class Report:
    """Shows step, epoch, loss, tokens/s, operations and remaining time, on standard error."""

    def __init__(
        self,
        max_steps: int,
        max_minutes: float | None = None,
        *,
        weight_name: str = "tokens",
        later: Later | None = None,
        shown: bool = True,
    ) -> None:
        self.max_steps, self.later = max_steps, later
        self.max_seconds = math.inf if max_minutes is None else 60 * max_minutes
        self.weight_name = weight_name
        self.console = Console(
            file=cast(IO[str], _StandardError()), highlight=False, soft_wrap=True, quiet=not shown
        )
        self.live = shown and sys.stderr.isatty()
        self._first: tuple[float, int] | None = None
        self._bar = Progress(
            TextColumn("step {task.completed:,}/{task.total:,}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            disable=not self.live,
        )
        self._task = self._bar.add_task("training", total=max_steps, facts="", left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def message(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False)

    def step(self, step: int, seconds: float) -> None:
        """Update the bar after training steps that took ``seconds``."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, step)
        began, first = self._first
        if self.live:
            left = self._left(step, seconds, (now - began) / max(1, step - first))
            self._bar.update(
                self._task, completed=step, left=self._left_text(left) if step > first else ""
            )

    def _left(self, step: int, seconds: float, a_step: float) -> float:
        """Seconds until the last step or the time limit."""
        return max(0.0, min((self.max_steps - step) * a_step, self.max_seconds - seconds))

    def _left_text(self, seconds: float) -> str:
        """The remaining time of this training and, in a comparison, of all of them."""
        after = None if self.later is None else self.later()
        rest = "" if after is None else f", {duration(seconds + after)} for all"
        return f"{duration(seconds)} left{rest}"

    def logged(self, step: int, epoch: int, figures: dict[str, float | int]) -> None:
        """Show training figures."""
        facts = (
            f"epoch {epoch + 1} · loss {figures['loss']:.3f} · "
            f"{figures['tokens_per_second']:,.0f} {self.weight_name}/s · "
            f"{_operations(figures['operations'])}"
        )
        if self.live:
            self._bar.update(self._task, facts=facts)
            return
        now = time.monotonic()
        began, first = self._first or (now, step)
        left = self._left(step, figures["seconds"], (now - began) / max(1, step - first))
        self.message(f"step {step:,}/{self.max_steps:,} · {facts} · {self._left_text(left)}")

    def validated(self, step: int, figures: dict[str, float], samples: list[Sample]) -> None:
        """Show the figures and samples of a validation."""
        text = " · ".join(
            f"{name} {value:.3g}" if name == "perplexity" else f"{name} {value:.3f}"
            for name, value in figures.items()
        )
        self.message(f"validation at step {step:,}: {text}")
        for sample in samples:
            given = (
                sample.source or sample.reference
            )  # otherwise the text was generated without a prompt
            if given:
                self.message(f"    source     {_printable(sample.source)}")
            self.message(f"    output     {_printable(sample.output)}")
            if given:
                self.message(f"    reference  {_printable(sample.reference)}")


def _printable(text: str) -> str:
    """Escape control characters for the terminal; an untrained model may generate them."""
    return "".join(
        "�" if unicodedata.category(character) == "Cc" else character
        for character in text.replace("\n", " ⏎ ")
    )


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    Example:
        >>> duration(75), duration(3675)
        ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _operations(count: float) -> str:
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G")):
        if count >= size:
            return f"{count / size:.1f} {prefix}FLOP"
    return f"{count:.2g} FLOP"
