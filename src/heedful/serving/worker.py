"""A worker process: one of several servers of the same port.

The supervisor starts it as ``python -m heedful.serving.worker``, with a listening socket and a
channel, which are inherited. Messages on the channel are lines of JSON. When the channel is closed,
the supervisor has ended, and the worker ends within seconds.
"""

import asyncio
import contextlib
import io
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI

from heedful.basics.errors import UserError
from heedful.basics.shared_tensors import sharing_tensors
from heedful.kernels.allocator import return_freed_memory
from heedful.runs.checkpoints import MODEL, mapped_weights
from heedful.runs.registry import load_file
from heedful.serving.connections import Connection
from heedful.serving.errors import log
from heedful.serving.server import Server, end_command, log_to_standard_error
from heedful.serving.setup import Setup
from heedful.serving.shared import Shared, WorkerTable
from heedful.tasks.options import use_threads

_ORPHAN_SECONDS = 3.0
"""Time to finish requests after the supervisor has ended."""
_YIELD_SECONDS = 0.002
# A worker with more connections than another one waits so long before it accepts one more.
_PAUSE = 1.0
"""Seconds until the next attempt if no connection can be accepted."""


class Channel:
    """The connection to the supervisor.

    Args:
        one: a connected socket.
    """

    def __init__(self, one: socket.socket) -> None:
        self._socket, self._lines = one, one.makefile("rb")
        self.closed = False
        """Whether the supervisor has ended."""

    def receive(self) -> Any:
        """The next message; None if the supervisor has ended."""
        try:
            line = self._lines.readline()
        except OSError:
            line = b""
        self.closed = not line.endswith(b"\n")
        return None if self.closed else json.loads(line)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. If the supervisor has ended, nothing is sent."""
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")


class WorkerServer(Server):
    """A server that shares its listening socket with other processes.

    Each worker accepts one connection at a time. asyncio's own servers accept all connections that
    wait, so that the first worker that wakes up would take a whole burst.

    Args:
        application: from `heedful.serving.make_application`.
        listening: the shared socket.
        table: the table of workers.
        row: this worker's row of the table.
        drain: the longest time until all connections are closed after `drain`, in seconds.
        on_ready: called when connections are accepted.
    """

    def __init__(
        self,
        application: FastAPI,
        listening: socket.socket,
        table: WorkerTable,
        row: int,
        drain: float,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(application)
        self._listening, self._table, self._row = listening, table, row
        self._drain_seconds, self._on_ready = drain, on_ready
        self._accepting = False
        self._accepted: set[asyncio.Task[Any]] = set()
        self._failed_before = False
        self.config.http = _counted(self.config.http, self._count)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup([])
        self._listening.setblocking(False)
        self._accepting = True
        self._count()
        self._resume()
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and end."""
        self.stop_accepting()
        await super().shutdown([])

    def drain(self) -> None:
        """Finish all requests, those that still arrive on open connections included, then end.

        Each connection is closed after its next response, or when its client sends nothing.
        """
        if self._ending is None:
            self._state.draining = True
            self.stop_accepting()
            self._ending = asyncio.ensure_future(self._end_without_connections())

    def end_soon(self) -> None:
        """Finish requests for a short time, then end: the supervisor has ended."""
        self.stop_accepting()
        self._grace = min(self._grace, _ORPHAN_SECONDS)
        if not self._state.stopping:
            self._state.stopping = True
            self._begin_shutdown()

    def stop_accepting(self) -> None:
        """Leave further connections to other workers."""
        if self._accepting:
            self._accepting = False
            asyncio.get_running_loop().remove_reader(self._listening)
            self._count()
            self._listening.close()

    async def _end_without_connections(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._drain_seconds
        while (self.server_state.connections or self._accepted) and loop.time() < until:
            await asyncio.sleep(0.05)
        if self._state.active:
            self._state.stopping = True  # they are answered 503
        self.config.timeout_graceful_shutdown = 1
        self.should_exit = True

    def _count(self) -> None:
        """Write the number of connections to the table."""
        count = len(self.server_state.connections) + len(self._accepted)
        self._table.set(self._row, os.getpid(), count if self._accepting else -1)

    def _resume(self) -> None:
        if self._accepting:
            asyncio.get_running_loop().add_reader(self._listening, self._on_waiting)

    def _on_waiting(self) -> None:
        """A connection waits: accept it, or leave it to a worker with fewer connections."""
        own = len(self.server_state.connections) + len(self._accepted)
        if own > self._table.least():
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listening)
            loop.call_later(_YIELD_SECONDS, self._accept_and_resume)
        else:
            self._accept()

    def _accept_and_resume(self) -> None:
        if self._accepting:
            self._resume()
            self._accept()

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            one, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another worker was faster, or the client has left
        except OSError as error:  # such as too many open files
            if not self._failed_before:
                log.error("cannot accept a connection: %s", error.strerror)
            self._failed_before = True
            loop.remove_reader(self._listening)
            loop.call_later(_PAUSE, self._resume)
            return
        one.setblocking(False)
        task = loop.create_task(loop.connect_accepted_socket(self._protocol, one))
        self._accepted.add(task)
        task.add_done_callback(self._on_accepted)

    def _on_accepted(self, task: asyncio.Task[Any]) -> None:
        self._accepted.discard(task)
        self._count()
        if not task.cancelled() and task.exception() is not None:
            log.error("a connection failed before its first request")

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


def _counted(kind: Any, count: Callable[[], None]) -> type[Connection]:
    """A class of connections that reports when their number changes."""

    class Counted(kind):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            count()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            count()

    return Counted


def main() -> None:
    """Run a worker: its arguments are the file descriptors of the socket and of the channel."""
    listening, one = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    channel = Channel(one)
    start = channel.receive()
    if start is None:
        return
    serving: list[WorkerServer] = []
    threading.Thread(target=_listen, args=(channel, start, serving), daemon=True).start()
    try:
        application = _work(start, channel, listening, serving)
    except UserError as error:
        channel.send({"failed": str(error)})
        sys.exit(2)
    if channel.closed:
        Shared(Path(start["shared"])).delete()
    end_command(application)


def _work(
    start: dict[str, Any],
    channel: Channel,
    listening: socket.socket,
    serving: list[WorkerServer],
) -> FastAPI:
    """Load the models and serve until the end."""
    setup = Setup.model_validate(start["setup"])
    for path in setup.plugins:
        load_file(path)
    use_threads(setup.threads or max(1, torch.get_num_threads() // start["workers"]))
    shared = Shared(Path(start["shared"]))
    with (
        _quiet(not start["notices"]),
        sharing_tensors(shared.weights),
        mapped_weights() as paths,
    ):
        models = setup.load()
    return_freed_memory()  # loading a model first fills memory with random values
    application = setup.application(models, shared)
    ready = {"titles": [one.title for one in models], "weights": _identities(paths)}
    limits = setup.limits
    server = WorkerServer(
        application,
        listening,
        shared.table(),
        start["row"],
        limits.timeout + limits.grace,
        lambda: channel.send({"ready": ready}),
    )
    serving.append(server)
    log_to_standard_error()
    server.run()
    return application


def _identities(paths: list[Path]) -> list[list[int]]:
    """What tells the files of weights apart: a file that is written again is another file."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            status = (path / MODEL).stat()
            found.append([status.st_ino, status.st_size, status.st_mtime_ns])
    return found


@contextlib.contextmanager
def _quiet(quiet: bool) -> Any:
    """Show no notices: they would be those of the first worker. Exceptions show them."""
    if not quiet:
        yield
        return
    kept = io.StringIO()
    try:
        with contextlib.redirect_stderr(kept):
            yield
    except BaseException:
        sys.stderr.write(kept.getvalue())
        raise


def _listen(channel: Channel, start: dict[str, Any], serving: list[WorkerServer]) -> None:
    """Do what the supervisor says; end if it has ended."""
    while (message := channel.receive()) is not None:
        if message == "drain":
            if not serving or serving[0].loop is None:
                os._exit(0)  # it has not accepted a connection yet
            _call(serving[0], serving[0].drain)
    if not serving:
        os._exit(1)
    _call(serving[0], serving[0].end_soon)
    # The event loop may be blocked, and the engine's thread may be in the middle of a computation.
    time.sleep(_ORPHAN_SECONDS + 2)
    Shared(Path(start["shared"])).delete()
    os._exit(1)


def _call(server: WorkerServer, what: Callable[[], None]) -> None:
    loop = server.loop
    if loop is not None:
        loop.call_soon_threadsafe(what)


if __name__ == "__main__":
    main()
