"""Worker processes that answer shards of lines. The parent process assigns every shard.

A shard's output is one file: a line of JSON with its counts, then one line for each input line. It
is written under a temporary name and then renamed, so that the file exists only when it is whole.
A shard whose worker died is assigned again. Workers end when the parent process ends, however it
ends.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.basics.notices import notice

MOST_DEATHS = 3
"""Number of workers that one shard may kill before the job ends."""
_SECONDS_TO_END = 5
_LINES = "lines"

Advance = Callable[[int], None]
"""Called with the number of lines that were finished since the last call."""


@dataclass(frozen=True)
class Shard:
    """Consecutive lines of one file."""

    path: Path
    """The file for its output."""
    where: str
    """Its file and lines, for messages."""
    first: int
    """Index of its first line in its file, from 0."""
    lines: list[str]


Answer = Callable[[Shard, Advance], tuple[list[str], Counter[str]]]
"""Returns one line of output for each line of a shard, without line breaks, and counts of what must
be reported."""
Opens = Callable[[], Answer]
"""Loads what a worker needs. It is pickled, and called once in each worker."""


class RunsShards(Protocol):
    """Answers all shards, as :func:`run_shards` does."""

    def __call__(
        self,
        shards: Iterator[Shard],
        opens: Opens,
        count: int,
        /,
        *,
        advance: Advance,
        finished: Callable[[Shard], None],
    ) -> None: ...


def run_shards(
    shards: Iterator[Shard],
    opens: Opens,
    count: int,
    *,
    advance: Advance,
    finished: Callable[[Shard], None],
) -> None:
    """Answer all shards in ``count`` processes; each shard's output is written to its path.

    Args:
        shards: read as workers need them; at most twice ``count`` are in memory.
        opens: loads what a worker needs.
        count: the largest number of processes.
        advance: called with progress; negative for the lines of a worker that died.
        finished: called for each shard after its output was written.

    Raises:
        UserError: a worker raised it, or one shard's workers died three times.
        RuntimeError: a worker raised another exception, whose traceback is in the message.
    """
    pool = _Pool(shards, opens, count, advance, finished)
    try:
        pool.run()
    finally:
        pool.close()


def write_shard(shard: Shard, lines: list[str], counts: Counter[str]) -> None:
    """Write a shard's output, atomically."""
    header = {_LINES: len(lines), **counts}
    with atomic_file(shard.path) as file:
        file.write(json.dumps(header).encode() + b"\n")
        for line in lines:
            file.write(line.encode() + b"\n")


def read_shard(path: Path) -> tuple[Counter[str], Iterator[bytes]]:
    """The counts of a shard's output, and its lines with their line breaks.

    Raises:
        UserError: the file is damaged. It is deleted, so that its lines are done again.
    """
    try:
        content = path.read_bytes()
        head, _, body = content.partition(b"\n")
        counts = Counter({str(name): int(value) for name, value in json.loads(head).items()})
        if counts.pop(_LINES) != body.count(b"\n") or (body and not body.endswith(b"\n")):
            raise ValueError
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise UserError(
            f"{path} was damaged and is deleted; rerun the same command to do its lines again"
        ) from error
    return counts, (line + b"\n" for line in body.split(b"\n")[:-1])


class _Worker:
    """A process and the shard that it was assigned."""

    def __init__(self, opens: Opens) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, opens), daemon=True)
        with _without_interrupts():
            self.process.start()
        theirs.close()
        self.shard: Shard | None = None
        self.advanced = 0

    def end(self) -> None:
        """End the process, which may be at work."""
        self.process.terminate()
        self.process.join(_SECONDS_TO_END)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


class _Pool:
    """Workers, and the shards that wait for them."""

    def __init__(
        self,
        shards: Iterator[Shard],
        opens: Opens,
        count: int,
        advance: Advance,
        finished: Callable[[Shard], None],
    ) -> None:
        self.shards, self.opens, self.count = shards, opens, count
        self.advance, self.finished = advance, finished
        self.workers: list[_Worker] = []
        self.waiting: deque[Shard] = deque()
        self.deaths: Counter[Path | None] = Counter()

    def run(self) -> None:
        """Answer all shards."""
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
        """Start as many workers as there are shards, up to the largest number."""
        self._fill()
        busy = sum(worker.shard is not None for worker in self.workers)
        while len(self.workers) < min(self.count, busy + len(self.waiting)):
            self.workers.append(_Worker(self.opens))

    def _fill(self) -> None:
        while len(self.waiting) < self.count:
            shard = next(self.shards, None)
            if shard is None:
                return
            self.waiting.append(shard)

    def _handle(self, worker: _Worker, kind: str, value: Any) -> None:
        """Handle a worker's message."""
        if kind == "advance":
            worker.advanced += value
            self.advance(value)
        elif kind == "failed":
            raise UserError(value)
        elif kind == "crashed":
            raise RuntimeError(value)
        else:
            if worker.shard is not None:
                self.finished(worker.shard)
            self._assign(worker)

    def _assign(self, worker: _Worker) -> None:
        """Give a worker its next shard; without one, it ends."""
        self._fill()
        worker.shard, worker.advanced = None, 0
        if self.waiting:
            worker.shard = self.waiting.popleft()
        with contextlib.suppress(OSError):  # a worker that died is noticed when it is waited for
            worker.connection.send(worker.shard)
        if worker.shard is None:
            self.workers.remove(worker)
            worker.process.join()
            worker.connection.close()

    def _replace(self, worker: _Worker) -> None:
        """Put the shard of a dead worker back; another worker is started for it."""
        self.workers.remove(worker)
        worker.process.join()
        worker.connection.close()
        shard, code = worker.shard, worker.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        where = "while it was loading" if shard is None else f"at {shard.where}"
        self.deaths[None if shard is None else shard.path] += 1
        if self.deaths[None if shard is None else shard.path] >= MOST_DEATHS:
            raise UserError(
                f"a worker {how} {where}, for the {MOST_DEATHS}rd time; if memory is short, use "
                "fewer workers; rerun the same command to resume"
            )
        notice(f"a worker {how} {where}; another worker takes its place")
        self.advance(-worker.advanced)
        if shard is not None:
            self.waiting.appendleft(shard)


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


def _work(connection: "Connection[Any, Any]", opens: Opens) -> None:
    """The main function of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer = opens()
        connection.send(("ready", None))
        while True:
            shard: Shard | None = connection.recv()
            if shard is None:
                return
            lines, counts = answer(shard, lambda count: connection.send(("advance", count)))
            if len(lines) != len(shard.lines):
                raise RuntimeError(f"{len(lines)} lines of output for {len(shard.lines)} of input")
            write_shard(shard, lines, counts)
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
