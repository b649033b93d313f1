"""Running the application: the port, signals, graceful shutdown."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from types import FrameType
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.serving.connections import connection_class
from heedful.serving.errors import log_failure
from heedful.serving.notifying import notify_ready, notify_reloading, notify_stopping
from heedful.serving.port import address_of, open_port

Reload = Callable[[], Callable[[], None]]
"""Loads models again, in a thread; returns a function that serves them, for the event loop."""

# Headers are long if a request has all its fields in the query string.
_LONGEST_HEAD = 256 << 10


def run_server(
    application: FastAPI,
    host: str = "127.0.0.1",
    port: int = 5000,
    *,
    listening: socket.socket | None = None,
    open_page: bool = False,
    what: str = "",
    text: str | None = None,
    reload: Reload | None = None,
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
        reload: called in a thread at SIGHUP; returns a function that is called in the event loop.

    Raises:
        UserError: the port is in use.
    """
    one = listening or open_port(host, port)
    log_to_standard_error()
    address = address_of(one)
    notice(f"serving {what + ' ' if what else ''}at {address} (Ctrl-C stops)")
    if open_page:
        place = "" if text is None else "#text=" + quote(text)
        threading.Timer(0.5, webbrowser.open, [address + place]).start()
    Server(application, reload).run([one])


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
        reload: see `run_server`.
    """

    def __init__(self, application: FastAPI, reload: Reload | None = None) -> None:
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
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop, once it runs."""
        self._ending: asyncio.Task[None] | None = None
        self._reload = reload
        self._reloading: asyncio.Task[None] | None = None
        self._hangup = Hangup()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Store the event loop for the signal handler."""
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._reload is not None and self._hangup.wanted:
            self.loop.add_signal_handler(signal.SIGHUP, self._handle_hangup)
        notify_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin a graceful shutdown at the first signal; stop at once at the second."""
        if self.loop is None or self._state.stopping:
            self.config.timeout_graceful_shutdown = 0
            self.should_exit = True
            return
        self._state.stopping = True
        notify_stopping()
        self.loop.call_soon_threadsafe(self._begin_shutdown)

    def _handle_hangup(self) -> None:
        """Load the models again, or stop if the terminal of this process was closed."""
        if self._hangup.terminal_closed:
            self.handle_exit(signal.SIGHUP, None)
        elif self._reloading is None or self._reloading.done():
            self._reloading = asyncio.ensure_future(self._load_again())
        else:
            notice("already reloading; send the signal again when it has finished")

    async def _load_again(self) -> None:
        assert self._reload is not None
        notify_reloading()
        notice("reloading; requests go on with the present models until the new ones are loaded")
        try:
            (await asyncio.to_thread(self._reload))()
        except UserError as error:
            notice(f"not reloaded, the present models go on: {error}")
        except Exception as error:  # noqa: BLE001 - the server must go on
            log_failure("reloading", error)
            notice("not reloaded, the present models go on")
        else:
            notice("reloaded")
        notify_ready()

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


class Hangup:
    """What SIGHUP means to a server: load the models again, or its terminal was closed."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()

    @property
    def wanted(self) -> bool:
        """Whether the signal exists and is not ignored, as with ``nohup``."""
        return (
            threading.current_thread() is threading.main_thread()
            and hasattr(signal, "SIGHUP")
            and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        )

    @property
    def terminal_closed(self) -> bool:
        """Whether standard error was a terminal, and the terminal was closed."""
        return self._terminal and not sys.stderr.isatty()


def log_to_standard_error() -> None:
    """Log the requests and the failures of the server to standard error."""
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
