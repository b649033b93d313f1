"""Running the application: the port, signals, graceful shutdown."""

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
from heedful.serving.connections import connection_class

# Headers are long if a request has all its fields in the query string.
_LONGEST_HEAD = 256 << 10


def open_port(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 for any free port.

    Raises:
        UserError: the port is in use or not allowed, or the host is not an address of this machine.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host}: no such address; use 127.0.0.1 or 0.0.0.0") from error
    family, kind, protocol, _, address = found[0]
    one = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # on Windows, two servers could then share the port
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(address)
        one.listen(2048)
    except OSError as error:
        one.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} is in use; choose another with --port"
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
    """Serve until SIGTERM or SIGINT; running requests are finished before it stops.

    Args:
        application: from `heedful.serving.make_application`.
        host: address to listen on.
        port: port to listen on; 0 for any free port.
        listening: a socket from `open_port`; replaces host and port.
        open_page: whether to open the page in a browser.
        what: the names of the models, for the start message.
        text: the initial text on the page.

    Raises:
        UserError: the port is in use.
    """
    one = listening or open_port(host, port)
    _log_to_standard_error()
    address = address_of(one)
    notice(f"serving {what + ' ' if what else ''}at {address} (Ctrl-C stops)")
    if open_page:
        place = "" if text is None else "#text=" + quote(text)
        threading.Timer(0.5, webbrowser.open, [address + place]).start()
    Server(application).run([one])


def end_command(application: FastAPI) -> None:
    """Exit at once if the engine's thread is still running, after `run_server` in a command.

    A normal exit of the interpreter would stop the thread inside PyTorch, which aborts the process.
    """
    if application.state.engine.busy:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class Server(uvicorn.Server):
    """A uvicorn server that refuses new requests (503) at shutdown and finishes running ones.

    Args:
        application: from `heedful.serving.make_application`.
    """

    def __init__(self, application: FastAPI) -> None:
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,  # it would log query strings, which may contain texts
            server_header=False,
            http=connection_class(application.state.limits),
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
        """Store the event loop for the signal handler."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin a graceful shutdown at the first signal; stop at once at the second."""
        if self._loop is None or self._state.stopping:
            self.config.timeout_graceful_shutdown = 0
            self.should_exit = True
            return
        self._state.stopping = True
        self._loop.call_soon_threadsafe(self._begin_shutdown)

    def _begin_shutdown(self) -> None:
        if self._state.active:
            count = self._state.active
            requests = f"{count} request{'s' * (count > 1)}"
            notice(f"finishing {requests} before shutdown, within {self._grace:g} s")
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
        "python_multipart": logging.ERROR,  # it warns about every invalid form
    }
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.propagate = False
        if not logger.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("heedful: %(asctime)s %(message)s"))
            logger.addHandler(handler)
