"""Middleware of every request: limits, origins and hosts, metrics, errors without traceback."""

import asyncio
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serving.admission import Admission
from heedful.serving.bodies import Body, BodyBudget
from heedful.serving.errors import RefusedError, error_response, log, log_failure, printable
from heedful.serving.keys import Keys, key_outside_body
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics

CLIENT_DISCONNECTED = 499
"""The status in metrics for requests whose client disconnected before the response."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

_STOPPING = RefusedError(503, "the server is stopping", retry_after=5)


class State:
    """State that the middleware and the server share."""

    def __init__(self) -> None:
        self.stopping = False
        """Whether new requests are refused, because the server is stopping."""
        self.draining = False
        """Whether connections are closed after their next response, because another worker takes
        over."""
        self.active = 0
        """The number of requests that are not yet answered."""


class Middleware:
    """The outermost ASGI middleware of the application.

    Args:
        app: the application that it wraps.
        state: whether the server is stopping, and the number of active requests.
        limits: limits on bodies and time.
        metrics: counts responses.
        admission: which origins and hosts are accepted.
        keys: API keys that are accepted; no key is required if None.
        log_requests: whether to log one line per request, without texts.
    """

    def __init__(
        self,
        app: ASGIApp,
        state: State,
        limits: Limits,
        metrics: Metrics,
        admission: Admission,
        keys: Keys | None = None,
        log_requests: bool = False,
    ) -> None:
        self.app, self.state, self.limits, self.metrics = app, state, limits, metrics
        self.admission, self.keys = admission, keys
        self._body_budget = BodyBudget(limits.bodies)
        self.log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        recorded, headers = _RecordingSend(send, self.state), Headers(scope=scope)
        has_key = self.keys is not None and self.keys.is_valid(key_outside_body(scope))
        body = Body(receive, headers, self.limits, None if has_key else self._body_budget)
        self.state.active += 1
        try:
            refused = await self._serve(scope, headers, body, recorded)
            if refused is not None and not recorded.started:
                await body.drain()
                if not body.done:
                    refused.headers["Connection"] = "close"
                await refused(scope, receive, recorded)
        finally:
            body.release()
            self.state.active -= 1
            seconds = time.monotonic() - began
            self.metrics.count_response(_route(scope), recorded.status, seconds)
            if self.log_requests:
                path = printable(scope["path"])
                log.info("%s %s %d %.0f ms", scope["method"], path, recorded.status, 1000 * seconds)

    async def _serve(
        self, scope: Scope, headers: Headers, body: Body, recorded: "_RecordingSend"
    ) -> Response | None:
        """Pass a request to the application; returns an error response if it fails."""
        try:
            if self.state.stopping:
                raise _STOPPING
            self.admission.check(scope["method"], headers)
            await self.app(scope, body, recorded)
        except RefusedError as refused:
            return refused.response()
        except asyncio.CancelledError:
            if not self.state.stopping:
                raise
            # The grace period is over, or a second signal was received.
            return _STOPPING.response()
        except ClientDisconnect:
            recorded.status = CLIENT_DISCONNECTED
        except Exception as error:  # noqa: BLE001 - no detail may reach the client
            log_failure(f"{scope['method']} {printable(scope['path'])}", error)
            return error_response(500, "internal server error")
        return None


class _RecordingSend:
    """Adds the common headers to a response and records its status."""

    def __init__(self, send: Send, state: State) -> None:
        self.send, self.state = send, state
        self.started = False
        self.status = 500

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if self.state.draining:
                headers["Connection"] = "close"
        await self.send(message)


def _route(scope: Scope) -> str:
    """The path of the route; the paths of clients would make an unlimited number of labels."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"
