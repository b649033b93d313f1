"""Profiles some steps of training: a trace, the slowest operators, and the time of each phase."""

import gzip
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder, write_text

FOLDER = "profile"
_MOST_STEPS = 100
"""A step of a large model has tens of thousands of events."""
_WARM_UP = 3
"""Steps before the profile: the first ones allocate memory and count operations."""
_PREFIX = "heedful: "
_OPERATORS = 30
_HOST = re.compile(r'"host_name": "[^"]*"')


class _Phases:
    """Times phases: by the clock, or by events on a CUDA card, which does not wait for them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._spans: list[tuple[str, Any, Any]] = []

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time the block; several threads may do so at once."""
        with record_function(_PREFIX + name):
            begin = self._now()
            yield
            self._spans.append((name, begin, self._now()))

    def _now(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self) -> dict[str, float]:
        """Seconds by name; those of threads are added."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        found: dict[str, float] = {}
        for name, begin, end in self._spans:
            cuda = self.device.type == "cuda"
            took = begin.elapsed_time(end) / 1000 if cuda else end - begin
            found[name] = found.get(name, 0.0) + took
        return found


def check_steps(steps: int) -> None:
    """Raise UserError if a number of steps cannot be profiled."""
    if not 0 <= steps <= _MOST_STEPS:
        raise UserError(f"--profile {steps}: give a number of steps from 1 to {_MOST_STEPS}")


_current: ContextVar[_Phases | None] = ContextVar("phases of a profiled step", default=None)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Time the block as a phase if the step is profiled; otherwise do nothing.

    Phases are ``data``, ``gradients`` with ``forward`` and ``backward`` inside, and ``optimiser``.
    """
    phases = _current.get()
    if phases is None:
        yield
        return
    with phases.timed(name):
        yield


class Profiler:
    """Profiles steps after a warm-up, and writes the result to ``RUN/profile/``.

    Results of training do not change. As a context it ends a profile that training did not reach.

    Args:
        run: the folder of the run.
        steps: number of steps to profile; 0 for none.
        device: the device of the model.
        notify: called with a summary and the place of the files.
    """

    def __init__(
        self, run: Path, steps: int, device: torch.device, notify: Callable[[str], None]
    ) -> None:
        self.folder, self.steps, self.device, self._notify = run / FOLDER, steps, device, notify
        self._seen = self._profiled = 0
        self._phases = _Phases(device)
        self._open = ExitStack()
        self._events: profile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *given: object) -> None:
        if self._events is not None:
            self._finish(whole=kind is None)
        elif kind is None and self.steps and not self._profiled:
            self._notify(
                f"no step was profiled: training ended in the {_WARM_UP} steps of warm-up before it"
            )

    @contextmanager
    def step(self) -> Iterator[None]:
        """The block is a step of training."""
        self._seen += 1
        if self._profiled >= self.steps or self._seen <= _WARM_UP:
            yield
            return
        if self._events is None:
            self._begin()
        token = _current.set(self._phases)
        try:
            with self._phases.timed("step"):
                yield
        finally:
            _current.reset(token)
        self._profiled += 1
        if self._profiled == self.steps:
            self._finish(whole=True)

    def _begin(self) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # no lines of its own on standard error
        activities = [ProfilerActivity.CPU]
        if self.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        all_threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        self._events = self._open.enter_context(
            profile(activities=activities, experimental_config=all_threads)
        )

    def _finish(self, *, whole: bool) -> None:
        events, self._events = self._events, None
        self._open.close()
        if events is None or not whole or not self._profiled:
            return
        seconds = shares(self._phases.seconds())
        with atomic_folder(self.folder) as beside:
            _write_trace(events, beside)
            write_text(beside / "summary.txt", self._summary(seconds, events))
        total = sum(seconds.values())
        parts = ", ".join(f"{name} {took / total:.0%}" for name, took in seconds.items())
        self._notify(
            f"profiled {_steps(self._profiled)}: {parts}; written to {self.folder / 'summary.txt'} "
            "and trace.json.gz, which https://ui.perfetto.dev opens"
        )

    def _summary(self, seconds: dict[str, float], events: profile) -> str:
        count, total = self._profiled, sum(seconds.values())
        first = _WARM_UP + 1
        where = self.device.type
        if where == "cpu":
            threads = torch.get_num_threads()
            where = f"{where} with {threads} thread{'s' * (threads > 1)}"
        lines = [
            f"{_steps(count)} on {where}: number {first} to {first + count - 1} of this process, "
            f"{1000 * total / count:,.2f} ms a step",
            "",
            f"{'phase':<48}{'':>14}{'ms a step':>14}{'share':>9}",
        ]
        lines += [
            f"{name:<48}{'':>14}{1000 * took / count:>14,.3f}{took / total:>9.1%}"
            for name, took in seconds.items()
        ]
        lines += ["", f"{'operator':<48}{'calls a step':>14}{'ms a step':>14}{'share':>9}"]
        found = _operators(events.key_averages(), on_card=self.device.type == "cuda")
        everything = sum(took for _, _, took in found)
        for name, calls, took in found[:_OPERATORS]:
            share = took / max(everything, 1e-12)
            lines.append(
                f"{name[:47]:<48}{calls / count:>14,.1f}{1000 * took / count:>14,.3f}{share:>9.1%}"
            )
        if len(found) > _OPERATORS:
            lines.append(f"and {len(found) - _OPERATORS} more operators")
        return "\n".join(lines) + "\n"


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"


def shares(seconds: dict[str, float]) -> dict[str, float]:
    """Seconds of each phase, which add up to those of the steps.

    The times of forward and backward passes in several threads overlap: they are scaled to the time
    of all gradients.

    Args:
        seconds: by name of the phase, with ``step`` for the steps as a whole.

    Example:
        >>> shares({"step": 10, "data": 1, "gradients": 6, "forward": 4, "backward": 8})
        {'data': 1, 'forward': 2.0, 'backward': 4.0, 'optimiser': 0.0, 'other': 3.0}
    """
    forward, backward = seconds.get("forward", 0.0), seconds.get("backward", 0.0)
    scale = min(1.0, seconds.get("gradients", 0.0) / max(forward + backward, 1e-12))
    found = {
        "data": seconds.get("data", 0.0),
        "forward": scale * forward,
        "backward": scale * backward,
        "optimiser": seconds.get("optimiser", 0.0),
    }
    return found | {"other": max(0.0, seconds["step"] - sum(found.values()))}


def _operators(averages: Iterable[Any], *, on_card: bool) -> list[tuple[str, int, float]]:
    """Name, calls and own seconds of each operator, the slowest first.

    The own time of a phase is what is not spent in operators of PyTorch: Python and C code.
    """
    found = []
    for average in averages:
        name = average.key
        if name.startswith(_PREFIX):
            if on_card or name == f"{_PREFIX}gradients":
                continue  # the main thread waits for others meanwhile
            name = f"({name.removeprefix(_PREFIX)}, outside operators)"
        own = average.self_device_time_total if on_card else average.self_cpu_time_total
        if own > 0:
            found.append((name, average.count, own / 1e6))
    return sorted(found, key=lambda one: -one[2])


def _write_trace(events: profile, folder: Path) -> None:
    """Write the trace in Chrome's format, without the name of this machine."""
    plain = folder / "trace.json"
    events.export_chrome_trace(str(plain))
    text = _HOST.sub('"host_name": ""', plain.read_text(encoding="utf-8"), count=1)
    plain.unlink()
    with gzip.open(folder / "trace.json.gz", "wt", encoding="utf-8", compresslevel=6) as file:
        file.write(text)
