"""The parent of several workers: it starts, watches and replaces them, and handles no request.

All workers inherit one listening socket. A connection that no worker has accepted waits in the
socket's queue, which belongs to none of them: it is not lost when a worker ends. If each worker had
a socket of its own (``SO_REUSEPORT``), Linux would reset the connections in the queue of a worker
that ends.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.serving.notifying import (
    notify_ready,
    notify_reloading,
    notify_stopping,
    without_notifications,
)
from heedful.serving.setup import Setup
from heedful.serving.shared import Shared, make_shared

_STEADY_SECONDS = 30.0
"""A worker that ends sooner after its start is replaced after a pause."""
_LONGEST_PAUSE = 60.0
_SWEEP_SECONDS = 5.0
_ROWS = 4
"""Rows of the table for each worker: its predecessor may finish requests while it serves."""
_KILL_SECONDS = 10.0
"""Time after the grace period until a worker is killed."""


class _Worker:
    """A worker process.

    Args:
        process: the process.
        channel: the connection to it.
        number: its number, from 1, for messages.
        row: its row of the table of workers.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, channel: socket.socket, number: int, row: int
    ) -> None:
        self.process, self.number, self.row = process, number, row
        self.expected = False
        """Whether it need not be replaced when it ends."""
        self.began = time.monotonic()
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._channel = channel

    @property
    def weights(self) -> Any:
        """What identifies its files of weights; None before it is ready."""
        known = self.ready.done() and self.ready.exception() is None
        return self.ready.result()["weights"] if known else None

    @property
    def fate(self) -> str:
        """How it ended."""
        code = self.process.returncode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if not self.ready.done():
            how += " while it was loading"
        return f"worker {self.number} (process {self.process.pid}) {how}"

    async def listen(self) -> None:
        """Read its messages until it ends."""
        reader, writer = await asyncio.open_connection(sock=self._channel)
        self._writer = writer
        with contextlib.suppress(ConnectionError):  # it died before it read everything
            while line := await reader.readline():
                message = json.loads(line)
                if "failed" in message:
                    self.ready.set_exception(UserError(message["failed"]))
                else:
                    self.ready.set_result(message["ready"])
        writer.close()
        await self.process.wait()
        if not self.ready.done():
            self.ready.set_exception(UserError(self.fate))
        self.ready.exception()  # it need not be waited for

    def drain(self) -> None:
        """Let it finish all requests and end."""
        self.expected = True
        self._writer.write(b'"drain"\n')

    def signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        self.expected = True
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Supervisor:
    """Runs workers until SIGTERM or SIGINT; SIGHUP replaces them one after the other.

    Args:
        setup: what each worker serves.
        listening: the listening socket.
        workers: the number of workers.
        shared: the folder that they share.
    """

    def __init__(
        self, setup: Setup, listening: socket.socket, workers: int, shared: Shared
    ) -> None:
        self.setup, self.listening, self.count, self.shared = setup, listening, workers, shared
        self.stopping = False
        self._current: list[_Worker | None] = [None] * workers
        self._failures = [0] * workers
        self._alive: set[_Worker] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._replacing = asyncio.Lock()
        self._reload_wanted = False
        self._started = False
        self._terminal = sys.stderr.isatty()

    async def run(self, announce: Any) -> None:
        """Serve until the end.

        Args:
            announce: called with the titles of the models when all workers are ready.

        Raises:
            UserError: a worker cannot load the models when the server starts.
        """
        self._handle_signals()
        try:
            workers = [await self._start(index) for index in range(self.count)]
            ready = await asyncio.gather(*(worker.ready for worker in workers))
        except UserError:
            if not self.stopping:
                await self._kill_all()
                raise
        else:
            self._started = True
            announce(ready[0]["titles"])
            notify_ready()
            self._spawn(self._sweep())
        await self._ended.wait()
        for task in self._tasks:
            task.cancel()

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Workers

    async def _start(self, index: int, *, replaced: bool = True) -> _Worker:
        """Start a worker; its predecessor in the same place may still run.

        Args:
            index: the place of the worker.
            replaced: whether it is replaced if it dies.
        """
        before = self._current[index]
        own, theirs = socket.socketpair()
        descriptors = self.listening.fileno(), theirs.fileno()
        metrics = {"PROMETHEUS_MULTIPROC_DIR": str(self.shared.metrics)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "heedful.serving.worker", *map(str, descriptors)),
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            env=without_notifications() | metrics,
            start_new_session=True,  # Ctrl-C and a closed terminal are the supervisor's
        )
        theirs.close()
        # Chosen without an await before it is used: several workers can be started at once.
        used = {worker.row for worker in self._alive}
        row = next(row for row in range(_ROWS * self.count) if row not in used)
        start = {
            "setup": self.setup.model_dump(mode="json", exclude_unset=True),
            "shared": str(self.shared.folder),
            "row": row,
            "workers": self.count,
            "notices": before is None and index == 0,
        }
        own.sendall(json.dumps(start).encode() + b"\n")
        worker = _Worker(process, own, index + 1, row)
        worker.expected = not replaced
        self._current[index] = worker
        self._alive.add(worker)
        self._spawn(self._watch(worker))
        if self.stopping:
            worker.signal(signal.SIGTERM)
        return worker

    async def _watch(self, worker: _Worker) -> None:
        """Wait for the end of a worker, and replace it if nobody told it to end."""
        await worker.listen()
        self._alive.discard(worker)
        with contextlib.closing(self.shared.table()) as table:
            table.set(worker.row, 0, 0)
        self.shared.keep_metrics_of(worker.process.pid)
        if self.stopping:
            if not self._alive:
                self._ended.set()
        elif not worker.expected and self._current[worker.number - 1] is worker:
            self._spawn(self._replace_dead(worker))

    async def _replace_dead(self, worker: _Worker) -> None:
        """Start a worker in the place of one that died, after a pause if it died soon."""
        index = worker.number - 1
        steady = time.monotonic() - worker.began > _STEADY_SECONDS
        self._failures[index] = 0 if steady else self._failures[index] + 1
        pause = min(2.0 ** (self._failures[index] - 2), _LONGEST_PAUSE)
        pause = pause if self._failures[index] > 1 else 0.0
        told = worker.ready.exception()
        why = worker.fate if told is None else str(told)
        notice(f"{why}; another one starts {f'in {pause:g} s' if pause else 'now'}")
        await asyncio.sleep(pause)
        if self.stopping or self._current[index] is not worker:  # replaced meanwhile
            return
        successor = await self._start(index)
        with contextlib.suppress(UserError):  # then it is replaced in turn
            await asyncio.shield(successor.ready)
            if any(other.weights != successor.weights for other in self._ready()):
                notice("the weights have changed since the other workers started")
                self._want_reload()

    def _ready(self) -> list[_Worker]:
        return [one for one in self._current if one is not None and one.weights is not None]

    # Signals

    def _stop(self) -> None:
        """End all workers: gracefully at the first signal, at once at the second."""
        if not self.stopping:
            self.stopping = True
            notify_stopping()
            self._spawn(self._kill_late())
        for worker in self._alive:
            worker.signal(signal.SIGTERM)
        if not self._alive:
            self._ended.set()

    def _hang_up(self) -> None:
        if self._terminal and not sys.stderr.isatty():  # the terminal was closed
            self._stop()
        elif self._started:
            self._want_reload()
        else:
            notice("the models are still being loaded; send the signal again when they are served")

    def _want_reload(self) -> None:
        if self._replacing.locked():
            if not self._reload_wanted:
                notice("already reloading; the workers are replaced once more after that")
            self._reload_wanted = True
        else:
            self._spawn(self._reload())

    async def _reload(self) -> None:
        async with self._replacing:
            self._reload_wanted = True
            while self._reload_wanted and not self.stopping:
                self._reload_wanted = False
                notify_reloading()
                began = time.monotonic()
                notice(f"reloading: replacing {self.count} workers, one after the other")
                when = time.time()
                if await self._replace_all() and not self.stopping:
                    self.shared.delete_old_weights(when)
                    notice(f"reloaded in {time.monotonic() - began:.1f} s")
                notify_ready()

    async def _replace_all(self) -> bool:
        """Replace all workers; returns whether all could be replaced."""
        for index in range(self.count):
            before = self._current[index]
            successor = await self._start(index, replaced=False)
            try:
                await asyncio.shield(successor.ready)
            except UserError as error:
                if self.stopping:
                    return False
                if before is not None and before in self._alive:
                    self._current[index] = before
                else:
                    self._spawn(self._replace_dead(successor))
                notice(f"not reloaded, the present workers go on: {error}")
                return False
            self._failures[index], successor.expected = 0, False
            if successor not in self._alive:  # it died at once
                self._spawn(self._replace_dead(successor))
            if before is not None and before in self._alive:
                before.drain()
                await before.process.wait()
        return True

    # The end

    async def _kill_late(self) -> None:
        await asyncio.sleep(self.setup.limits.grace + _KILL_SECONDS)
        for worker in self._alive:
            notice(f"worker {worker.number} does not end and is killed")
            worker.signal(signal.SIGKILL)

    async def _kill_all(self) -> None:
        self.stopping = True
        for worker in self._alive:
            worker.signal(signal.SIGKILL)
        if self._alive:
            await self._ended.wait()

    async def _sweep(self) -> None:
        """Delete old translated files."""
        seconds = self.setup.limits.file_time
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, seconds))
            self.shared.delete_old_files(seconds)


def run_workers(setup: Setup, listening: socket.socket, workers: int, announce: Any) -> None:
    """Serve with several processes until SIGTERM or SIGINT.

    Args:
        setup: what each worker serves.
        listening: the listening socket.
        workers: the number of workers.
        announce: called with the titles of the models when all workers are ready.

    Raises:
        UserError: the models cannot be loaded, or this system has no such workers (Windows).
    """
    if os.name != "posix":
        raise UserError("--workers needs Linux or macOS; start one server for each port instead")
    shared = make_shared(_ROWS * workers)
    try:
        asyncio.run(Supervisor(setup, listening, workers, shared).run(announce))
    finally:
        shared.delete()
