"""What every request passes first: limits, names of hosts, figures, and no traceback outwards."""

import asyncio
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.saying import RefusedError, error_answer, log, log_failure, said

# So much of a body that is too long is still read, so that its sender hears why it is refused.
_DRAINED = 64 << 20
CLIENT_LEFT = 499
"""The status under which requests are counted whose client did not wait for the answer."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_STOPPING = RefusedError(503, "the server is stopping", retry_after=5)


class State:
    """What the gate and the server both know."""

    def __init__(self) -> None:
        self.stopping = False
        """Whether new requests are told to go elsewhere."""
        self.active = 0
        """Requests that have not been answered."""


class Gate:
    """The outermost part of the application.

    Args:
        app: what is inside.
        state: whether the server is stopping; requests in hand are counted in it.
        limits: of bodies and time.
        metrics: where answers are counted.
        hosts: names that requests may be meant for; any if empty. A page of another site that
            has its name lead here (DNS rebinding) is kept out by them.
        log_requests: whether to log a line a request, never with its texts.
    """

    def __init__(
        self,
        app: ASGIApp,
        state: State,
        limits: Limits,
        metrics: Metrics,
        hosts: Collection[str] = (),
        log_requests: bool = False,
    ) -> None:
        self.app, self.state, self.limits, self.metrics = app, state, limits, metrics
        self.hosts = {host.lower() for host in hosts}
        self.log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        noted = _Noted(send)
        self.state.active += 1
        try:
            refused = await self._refused(scope, receive, noted)
            if refused is not None and not noted.begun:
                await refused(scope, receive, noted)
        finally:
            self.state.active -= 1
            seconds = time.monotonic() - began
            self.metrics.answered(_route(scope), noted.status, seconds)
            if self.log_requests:
                path = said(scope["path"])
                log.info("%s %s %d %.0f ms", scope["method"], path, noted.status, 1000 * seconds)

    async def _refused(self, scope: Scope, receive: Receive, noted: "_Noted") -> Response | None:
        """Have a request served; what is to be answered in place of it if that cannot be."""
        try:
            self._admit(scope)
            await self.app(scope, _Limited(receive, self.limits), noted)
        except RefusedError as refused:
            return refused.answer()
        except asyncio.CancelledError:
            if not self.state.stopping:
                raise
            # The time to finish is over, or a second signal came.
            return _STOPPING.answer()
        except ClientDisconnect:
            noted.status = CLIENT_LEFT
        except Exception as error:  # noqa: BLE001 - nothing of it may reach the client
            log_failure(f"{scope['method']} {said(scope['path'])}", error)
            return error_answer(500, "an error of the server")
        return None

    def _admit(self, scope: Scope) -> None:
        if self.state.stopping:
            raise _STOPPING
        if self.hosts:
            name = _hostname(Headers(scope=scope).get("host", ""))
            if name not in self.hosts:
                raise RefusedError(400, f"{said(name)} is no name of this server; see --allow-host")


class _Noted:
    """Sends an answer with the headers that all have, and remembers its status."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.begun = False
        self.status = 500

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await self.send(message)


class _Limited:
    """A request's body, up to its limits of size and of time."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self.receive, self.limits = receive, limits
        self.size = 0
        self.done = False
        # For the whole body: one that trickles in would otherwise never be too late.
        self.until = asyncio.get_running_loop().time() + limits.timeout

    async def __call__(self) -> Message:
        if self.done:  # all that can come now is that the client leaves
            return await self.receive()
        message = await self._next()
        self.size += len(message.get("body", b""))
        if self.size > self.limits.body:
            while message.get("more_body") and self.size < _DRAINED:
                message = await self._next()
                self.size += len(message.get("body", b""))
            most = f"{self.limits.body:,} bytes"
            raise RefusedError(413, f"the request is too long; the most is {most}")
        self.done = not message.get("more_body")
        return message

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout_at(self.until):
                return await self.receive()
        except TimeoutError:
            raise RefusedError(408, "the request's body did not come in time") from None


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _route(scope: Scope) -> str:
    """The route's path, of which there are few, not the client's, of which there is no end."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"
