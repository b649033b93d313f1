"""Trains several prepared runs at the same time, each in its own process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from heedful.basics.bounded_reading import read_json_lines
from heedful.basics.notices import notice
from heedful.runs.opening import open_run
from heedful.runs.registry import loaded_files
from heedful.training.comparison_record import Training
from heedful.training.interrupting import END_WITH_INPUT, interruptible
from heedful.training.report import duration

_INTERRUPTED = 130
_POLL_SECONDS = 0.2


class End(Protocol):
    """Called when a training has ended."""

    def __call__(
        self, training: Training, seconds: float, *, finished: bool, error: str | None
    ) -> None: ...


class _Process:
    """A process that trains one run."""

    def __init__(self, folder: Path, training: Training, data: Path | None) -> None:
        self.training, self.run = training, folder / training.folder
        self.log = self.run.with_name(f"{self.run.name}.log")
        self.began = time.monotonic()
        plugins = [f"--plugin={file}" for file in loaded_files()]
        place = [] if data is None else ["--data", str(data)]
        command = [sys.executable, "-m", "heedful", *plugins, "train", "--out", str(self.run)]
        with self.log.open("ab") as log:
            # In its own session, so that Ctrl-C reaches this process only, which passes it on once.
            # The pipe closes when this process ends, even if it is killed.
            self.process = subprocess.Popen(
                [*command, *place],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, END_WITH_INPUT: "1"},
            )

    def fraction(self) -> float:
        """The share of the training that is done."""
        settings = open_run(self.run).recipe.training
        last = None
        for record in read_json_lines(self.run / "metrics.jsonl", growing=True):
            last = record if record.get("kind") == "train" else last
        if last is None:
            return 0.0
        shares: list[float] = [last["step"] / settings.max_steps]
        if settings.max_minutes is not None:
            shares.append(last["seconds"] / 60 / settings.max_minutes)
        return min(1.0, max(shares))

    def error(self) -> str:
        """The last line of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return (lines or ["no message"])[-1].removeprefix("heedful: ")


def train_in_processes(
    folder: Path, trainings: Sequence[Training], data: Path | None, jobs: int, end: End
) -> bool:
    """Train prepared runs, ``jobs`` at a time; returns False if interrupted.

    Args:
        folder: the comparison's folder. The messages of each training are in ``seed-N.log``.
        trainings: the trainings, in the order in which they start.
        data: the base folder of relative data paths.
        jobs: number of processes.
        end: called when a training has ended.
    """
    waiting, running = list(trainings), list[_Process]()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        for one in running:
            one.process.send_signal(signal.SIGINT)

    with interruptible(interrupt), _Shown(len(trainings)) as shown:
        try:
            while running or (waiting and not interrupted):
                while waiting and len(running) < jobs and not interrupted:
                    started = _Process(folder, waiting.pop(0), data)
                    started.training.state = "running"
                    running.append(started)
                    notice(f"training {started.run}; messages in {started.log}")
                for one in [one for one in running if one.process.poll() is not None]:
                    running.remove(one)
                    _ended(one, end, interrupted=interrupted)
                    shown.done += 1
                shown.update([one.fraction() for one in running])
                time.sleep(_POLL_SECONDS)
        finally:
            for one in running:
                one.process.kill()
    return not interrupted and not any(one.state == "running" for one in trainings)


def _ended(one: _Process, end: End, *, interrupted: bool) -> None:
    code, seconds = one.process.returncode, time.monotonic() - one.began
    if code and (interrupted or code == _INTERRUPTED):
        end(one.training, seconds, finished=False, error=None)
    elif code:
        error = f"ended by signal {-code}" if code < 0 else one.error()
        end(one.training, seconds, finished=True, error=error)
    else:
        end(one.training, seconds, finished=True, error=None)


class _Shown:
    """The progress over all trainings: a bar on a terminal, a line every minute elsewhere."""

    def __init__(self, count: int) -> None:
        self.count, self.done = count, 0
        self.began = self.printed = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.fields[facts]}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=count, facts="", left="")

    def __enter__(self) -> "_Shown":
        self._bar.start()
        return self

    def __exit__(self, *given: object) -> None:
        self._bar.stop()

    def update(self, fractions: Sequence[float]) -> None:
        """Show the progress, given the fractions of the running trainings."""
        whole, now = self.done + sum(fractions), time.monotonic()
        seconds = now - self.began
        left = f"{duration(seconds * (self.count - whole) / whole)} left" if whole else ""
        facts = f"{self.done} of {self.count} trained, {len(fractions)} running"
        self._bar.update(self._task, completed=whole, facts=facts, left=left)
        if self._bar.disable and now - self.printed >= 60:
            self.printed = now
            notice(", ".join(part for part in (facts, left) if part))
