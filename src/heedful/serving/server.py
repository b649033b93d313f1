"""Running the application: the port, signals, a stop that finishes what is in hand."""

import asyncio
import errno
import logging
import os
import socket
import sys
import threading
import webbrowser
from types import FrameType
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.serving.connections import connections_of

# Where requests have everything in the query string, their head is long.
_LONGEST_HEAD = 256 << 10


def open_port(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any free one.

    Raises:
        UserError: the port is taken or not allowed, or the host is not this machine's.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host}: no such address; use 127.0.0.1 or 0.0.0.0") from error
    family, kind, protocol, _, address = found[0]
    one = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would let two servers share the port
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(address)
        one.listen(2048)
    except OSError as error:
        one.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} is taken; stop what uses it, or choose another with --port"
        elif error.errno == errno.EACCES:
            message = f"port {port} is not allowed; choose one above 1023 with --port"
        else:
            message = f"cannot listen at {host}, port {port}: {error.strerror}"
        raise UserError(message) from error
    return one


def address_of(one: socket.socket) -> str:
    """The URL of a listening socket, ending in ``/``."""
    host, port = one.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"


def run_server(
    application: FastAPI,
    host: str = "127.0.0.1",
    port: int = 5000,
    *,
    listening: socket.socket | None = None,
    open_page: bool = False,
    what: str = "",
    text: str | None = None,
) -> None:
    """Serve until a signal: SIGTERM and SIGINT stop it when what is in hand is finished.

    Args:
        application: of `heedful.serving.make_application`.
        host: where to listen.
        port: where to listen; 0 is any free port.
        listening: a socket of `open_port`, in place of host and port.
        open_page: whether to open the page in a browser.
        what: what is served, for the line that says where.
        text: what the page shows at first.

    Raises:
        UserError: the port is taken.
    """
    one = listening or open_port(host, port)
    _log_to_standard_error()
    address = address_of(one)
    notice(f"serving {what + ' ' if what else ''}at {address} (Ctrl+C stops)")
    if open_page:
        place = "" if text is None else "#text=" + quote(text)
        threading.Timer(0.5, webbrowser.open, [address + place]).start()
    Server(application).run([one])


def end_command(application: FastAPI) -> None:
    """End the process at once if model work goes on that nobody waits for any more.

    For commands, after `run_server`: the interpreter's own end would stop that thread within
    PyTorch, which aborts the process.
    """
    if application.state.engine.busy:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class Server(uvicorn.Server):
    """Goes on answering (503 to the new) until what is in hand is finished.

    Args:
        application: of `heedful.serving.make_application`.
    """

    def __init__(self, application: FastAPI) -> None:
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,  # it would log query strings, which may hold texts
            server_header=False,
            http=connections_of(application.state.limits),
            ws="none",
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            timeout_keep_alive=5,
            lifespan="on",
        )
        super().__init__(config)
        self._state = application.state.serving
        self._grace: float = application.state.limits.grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Remember the loop, which a signal's handler needs."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the end; a second one does not wait."""
        if self._loop is None or self._state.stopping:
            self.config.timeout_graceful_shutdown = 0
            self.should_exit = True
            return
        self._state.stopping = True
        self._loop.call_soon_threadsafe(self._begin_to_end)

    def _begin_to_end(self) -> None:
        if self._state.active:
            count = self._state.active
            requests = f"{count} request{'s' * (count > 1)}"
            notice(f"stopping when {requests} in hand are finished, at most {self._grace:g} s")
        self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        until = asyncio.get_running_loop().time() + self._grace
        while self._state.active and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.05)
        self.config.timeout_graceful_shutdown = 1
        self.should_exit = True


def _log_to_standard_error() -> None:
    levels = {
        "heedful.serving": logging.INFO,
        "uvicorn.error": logging.ERROR,
        "python_multipart": logging.ERROR,  # it warns of every broken form
    }
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.propagate = False
        if not logger.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("heedful: %(asctime)s %(message)s"))
            logger.addHandler(handler)
