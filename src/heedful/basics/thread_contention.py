"""Uses fewer threads while other programs use the processor's cores.

Threads that share one operation wait for each other at its end. If another program uses one of the
cores, the thread that should run there is suspended for milliseconds, and all others wait for it:
two threads are then slower than one. There are two ways to detect this:

- :data:`waiting_time` measures how long the threads of heedful's C code wait for each other
  (:func:`heedful.kernels.compiling.in_parallel`).
- :func:`without_contention` compares the speed of PyTorch with all threads and with fewer, with
  some milliseconds of work every few seconds.

The results of the C code do not change: its work is divided into the same parts for any number of
threads. PyTorch's sums may differ in the last digits with another number of threads. PyTorch
therefore keeps its number if one was chosen (:func:`keep_threads`) or deterministic algorithms are
enabled (``torch.use_deterministic_algorithms``).
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from heedful.basics.notices import notice

T = TypeVar("T")

_WATCH = 0.05
"""Seconds of parallel work after which waiting is evaluated."""
_START = 2e-4
"""Seconds that starting and ending parallel work may take without counting as waiting."""
_LOST = 0.4
"""Share of the time that must be spent waiting before one thread is used for a while."""
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 16.0
"""Seconds of single-threaded work; doubles each time the threads still wait."""

_WARM_UP, _OPERATIONS = 4, 60
"""Size of a trial, which takes about 10 to 30 milliseconds on an idle machine."""
_FIRST, _OFTEN, _SELDOM = 1.0, 4.0, 10.0
"""Seconds between two trials. The interval doubles each time, up to `_OFTEN`, or up to `_SELDOM`
if all threads are clearly faster than one."""
_GAIN, _CLEAR = 1.2, 1.5
"""Required speed-ups of all threads: to be used, and to count as clearly faster."""

_notified = threading.Event()


def _notify(text: str) -> None:
    """Print a notice that fewer threads are used, once in a process."""
    if not _notified.is_set():
        _notified.set()
        notice(text)


_keeping = 0


@contextmanager
def keep_threads() -> Iterator[None]:
    """Let PyTorch keep its number of threads in this process while the block runs."""
    global _keeping
    _keeping += 1
    try:
        yield
    finally:
        _keeping -= 1


def set_threads(count: int) -> None:
    """Let PyTorch compute on ``count`` threads until the end of the process."""
    global _keeping
    torch.set_num_threads(count)
    _keeping += 1


def _fixed() -> bool:
    return _keeping > 0 or torch.are_deterministic_algorithms_enabled()


class WaitingTime:
    """How long threads wait for each other, and whether one thread is faster now."""

    def __init__(self) -> None:
        self._passed = self._lost = 0.0
        self._pause, self._until = 0.0, 0.0

    @property
    def alone(self) -> bool:
        """Whether work should be done by one thread."""
        return time.monotonic() < self._until

    def record(self, seconds: float, shortest: float) -> None:
        """Record the time of parallel work and of its shortest part: the difference is waiting."""
        self._passed += seconds
        self._lost += max(0.0, seconds - shortest - _START)
        if self._passed < _WATCH:
            return
        crowded = self._lost > _LOST * self._passed
        self._passed = self._lost = 0.0
        if not crowded:
            self._pause = 0.0
            return
        self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _LONGEST_PAUSE)
        self._until = time.monotonic() + self._pause
        _notify("other programs use the processor: some work is computed with fewer threads")

    @contextmanager
    def kernel(self) -> Iterator[None]:
        """Run PyTorch's operations between parallel work on one thread if that work does."""
        with with_threads(1 if self.alone and not _fixed() else torch.get_num_threads()):
            yield


waiting_time = WaitingTime()
"""Shared by all C code of heedful that runs in Python threads."""


class Trials:
    """The time PyTorch takes with each number of threads, measured at intervals."""

    def __init__(self) -> None:
        self._next, self._pause = -math.inf, _FIRST
        self._seconds: dict[int, float] = {}
        """Number of threads → seconds of a trial; a running mean, as contention comes in bursts."""
        self._lock = threading.Lock()

    def threads(self, usual: int) -> int:
        """The number of threads to use now, at most ``usual``."""
        counts = sorted({1, usual // 2, usual - 1, usual} - {0})
        with self._lock:
            if counts != list(self._seconds):
                self._seconds = dict.fromkeys(counts, 0.0)
                self._next, self._pause = -math.inf, _FIRST
            if time.monotonic() >= self._next:
                self._try()
            # The smallest number that is about as fast as the fastest.
            most = _GAIN * min(self._seconds.values())
            chosen = next(count for count in counts if self._seconds[count] <= most)
        if chosen < usual:
            _notify(
                f"computing with {chosen} of {usual} threads: more are not faster now, because "
                "other programs use the processor"
            )
        return chosen

    def _try(self) -> None:
        for count, before in self._seconds.items():
            seconds = trial(count)
            self._seconds[count] = (before + seconds) / 2 if before else seconds
        most = max(self._seconds)
        quiet = self._seconds[1] > _CLEAR * self._seconds[most]
        longest = _SELDOM if quiet else _OFTEN
        self._next = time.monotonic() + min(self._pause, longest)
        self._pause = min(2 * self._pause, longest)


def trial(threads: int) -> float:
    """Seconds that PyTorch takes for a few operations with a number of threads."""
    rows, weight = torch.full((192, 256), 0.5), torch.full((256, 256), 0.001)
    with with_threads(threads), torch.inference_mode(), torch.autocast("cpu", enabled=False):
        for _ in range(_WARM_UP):
            rows = torch.tanh(rows @ weight)
        began = time.perf_counter()
        for _ in range(_OPERATIONS):
            rows = torch.tanh(rows @ weight)
        return time.perf_counter() - began


_trials = Trials()


@contextmanager
def without_contention(
    device: torch.device, threads: Callable[[int], int] = _trials.threads
) -> Iterator[None]:
    """Compute with fewer threads inside the block if that is currently faster.

    For blocks of some milliseconds or more. A notice is printed once. Has no effect on devices
    other than the CPU, or with one thread.

    Args:
        device: where the block computes.
        threads: maps the usual number of threads to the number to use.
    """
    usual = torch.get_num_threads()
    kept = device.type != "cpu" or usual == 1 or _fixed()
    with with_threads(usual if kept else threads(usual)):
        yield


def each_without_contention(items: Iterator[T], device: torch.device) -> Iterator[T]:
    """The same items, each computed inside :func:`without_contention`."""
    while True:
        with without_contention(device):
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Let PyTorch compute on ``count`` threads while the block runs."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
