"""Worker processes that do jobs. The parent process assigns every job.

A job whose worker died is assigned again, so doing it twice must have the same result as doing it
once. Workers end when the parent process ends, however it ends.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from heedful.basics.errors import UserError
from heedful.basics.notices import notice

MOST_DEATHS = 3
"""Number of workers that one job may kill before all ends."""
_SECONDS_TO_END = 5

Advance = Callable[[int], None]
"""Called with the number of units that were finished since the last call."""


def usable_processors() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Job(Protocol):
    """What a worker does at once; it is pickled."""

    @property
    def path(self) -> Path:
        """A file that identifies the job."""
        ...

    @property
    def where(self) -> str:
        """What it is about, for messages."""
        ...


J = TypeVar("J", bound=Job)


def run_jobs(
    jobs: Iterator[J],
    opens: Callable[[], Callable[[Any, Advance], None]],
    count: int,
    *,
    advance: Advance,
    finished: Callable[[J], None],
) -> None:
    """Do all jobs in ``count`` processes.

    Args:
        jobs: read as workers need them; at most twice ``count`` are in memory.
        opens: loads what a worker needs, and returns the function that does a job. It is pickled,
            and called once in each worker.
        count: the largest number of processes.
        advance: called with progress; negative for the units of a worker that died.
        finished: called for each job after it was done.

    Raises:
        UserError: a worker raised it, or one job's workers died three times.
        RuntimeError: a worker raised another exception, whose traceback is in the message.
    """
    pool = _Pool(jobs, opens, count, advance, finished)
    try:
        pool.run()
    finally:
        pool.close()


class _Worker(Generic[J]):
    """A process and the job that it was assigned."""

    def __init__(self, opens: Callable[[], Callable[[Any, Advance], None]]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, opens), daemon=True)
        with _without_interrupts(), _without_main():
            self.process.start()
        theirs.close()
        self.job: J | None = None
        self.advanced = 0

    def end(self) -> None:
        """End the process, which may be at work."""
        self.process.terminate()
        self.process.join(_SECONDS_TO_END)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


class _Pool(Generic[J]):
    """Workers, and the jobs that wait for them."""

    def __init__(
        self,
        jobs: Iterator[J],
        opens: Callable[[], Callable[[Any, Advance], None]],
        count: int,
        advance: Advance,
        finished: Callable[[J], None],
    ) -> None:
        self.jobs, self.opens, self.count = jobs, opens, count
        self.advance, self.finished = advance, finished
        self.workers: list[_Worker[J]] = []
        self.waiting: deque[J] = deque()
        self.deaths: Counter[Path | None] = Counter()

    def run(self) -> None:
        """Answer all jobs."""
        while True:
            self._start()
            if not self.workers:
                return
            ready = set(wait([worker.connection for worker in self.workers]))
            for worker in [one for one in self.workers if one.connection in ready]:
                try:
                    kind, value = worker.connection.recv()
                except (EOFError, OSError):
                    self._replace(worker)
                else:
                    self._handle(worker, kind, value)

    def close(self) -> None:
        """End all workers."""
        while self.workers:
            self.workers.pop().end()

    def _start(self) -> None:
        """Start as many workers as there are jobs, up to the largest number."""
        self._fill()
        busy = sum(worker.job is not None for worker in self.workers)
        while len(self.workers) < min(self.count, busy + len(self.waiting)):
            self.workers.append(_Worker(self.opens))

    def _fill(self) -> None:
        while len(self.waiting) < self.count:
            job = next(self.jobs, None)
            if job is None:
                return
            self.waiting.append(job)

    def _handle(self, worker: _Worker[J], kind: str, value: Any) -> None:
        """Handle a worker's message."""
        if kind == "advance":
            worker.advanced += value
            self.advance(value)
        elif kind == "failed":
            raise UserError(value)
        elif kind == "crashed":
            raise RuntimeError(value)
        else:
            if worker.job is not None:
                self.finished(worker.job)
            self._assign(worker)

    def _assign(self, worker: _Worker[J]) -> None:
        """Give a worker its next job; without one, it ends."""
        if not self.waiting:
            self._fill()
        worker.job, worker.advanced = None, 0
        if self.waiting:
            worker.job = self.waiting.popleft()
        with contextlib.suppress(OSError):  # a worker that died is noticed when it is waited for
            worker.connection.send(worker.job)
        if worker.job is None:
            self.workers.remove(worker)
            worker.process.join()
            worker.connection.close()
        self._fill()  # while the worker works

    def _replace(self, worker: _Worker[J]) -> None:
        """Put the job of a dead worker back; another worker is started for it."""
        self.workers.remove(worker)
        worker.process.join()
        worker.connection.close()
        job, code = worker.job, worker.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        where = "while it was loading" if job is None else f"at {job.where}"
        self.deaths[None if job is None else job.path] += 1
        if self.deaths[None if job is None else job.path] >= MOST_DEATHS:
            raise UserError(
                f"a worker {how} {where}, for the {MOST_DEATHS}rd time; if memory is short, use "
                "fewer workers; rerun the same command to resume"
            )
        notice(f"a worker {how} {where}; another worker takes its place")
        self.advance(-worker.advanced)
        if job is not None:
            self.waiting.appendleft(job)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes that are started in this block never receive Ctrl-C, which the parent handles."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # started later, it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Processes that are started in this block do not import the program's main module again.

    A script that calls heedful without ``if __name__ == "__main__"`` would start itself again.
    """
    main = sys.modules["__main__"]
    known = {name: vars(main).get(name) for name in ("__spec__", "__file__")}
    try:
        vars(main)["__spec__"] = None
        vars(main).pop("__file__", None)
        yield
    finally:
        vars(main).update(
            {name: value for name, value in known.items() if name == "__spec__" or value}
        )


def _work(
    connection: "Connection[Any, Any]", opens: Callable[[], Callable[[Any, Advance], None]]
) -> None:
    """The main function of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        work = opens()
        connection.send(("ready", None))
        while True:
            job = connection.recv()
            if job is None:
                return
            work(job, lambda count: connection.send(("advance", count)))
            connection.send(("done", None))
    except UserError as error:
        connection.send(("failed", str(error)))
    except Exception:  # noqa: BLE001 - the parent raises it
        connection.send(("crashed", traceback.format_exc()))


def _end_with_parent() -> None:
    """End this process when its parent has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
