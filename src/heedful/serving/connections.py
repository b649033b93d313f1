"""Connections: their maximum number, and time limits for clients that send or read slowly."""

import asyncio
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from heedful.serving.limits import Limits

_FULL = (503, "Service Unavailable", "too many connections; try again later", "Retry-After: 1\r\n")
_LATE = (408, "Request Timeout", "the request headers did not arrive in time", "")


class Connection(H11Protocol):
    """An HTTP/1.1 connection.

    uvicorn closes connections that are idle between requests. This class also refuses connections
    beyond a maximum number. It closes connections whose request headers take too long (counted from
    the connection or the previous response) and those whose client does not read the response.
    """

    limits = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept or refuse the connection."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._end(*_FULL)
        else:
            self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Process received data."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        """Wait for the next request on the connection."""
        super().on_response_complete()
        self._watch_head()

    def pause_writing(self) -> None:
        """Start the timer for a client that reads more slowly than the server writes."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timer: the client has read."""
        super().resume_writing()
        self._cancel("_unread")

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._cancel("_head")
        self._cancel("_unread")
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        waits = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if not waits:
            self._cancel("_head")
        elif self._head is None:
            self._head = self.loop.call_later(self.limits.head_timeout, self._head_timed_out)

    def _head_timed_out(self) -> None:
        if self.conn.trailing_data[0]:
            self._end(*_LATE)
        else:
            self.transport.close()

    def _cancel(self, name: Literal["_head", "_unread"]) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)

    def _end(self, status: int, reason: str, error: str, more: str) -> None:
        """Send an error without reading a request, and close the connection."""
        body = f'{{"error":"{error}"}}'
        head = (
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n"
        )
        self.transport.write(f"{head}{body}".encode("ascii"))
        self.transport.close()


def connection_class(limits: Limits) -> type[Connection]:
    """The connection class of a server with these limits."""
    return type("Connection", (Connection,), {"limits": limits})
