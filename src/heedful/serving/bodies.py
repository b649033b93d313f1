"""Requests' bodies, read up to limits of size, of time, and of what all of them take together."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from heedful.serving.errors import RefusedError
from heedful.serving.limits import Limits

_FREE = 64 << 10
"""Bytes that any body may have, whatever others take."""
# So much of a refused body is still read, for so many seconds, so that its sender, who may read
# nothing before all is sent, hears why. None of it is kept.
_DRAINED = 16 << 20
_DRAIN_SECONDS = 2.0


class Room:
    """What is left for long bodies of requests that have shown no key before their body."""

    def __init__(self, size: int) -> None:
        self.left = size


class Body:
    """What a request receives: its body, up to its limits.

    Args:
        receive: gives the parts.
        headers: of the request.
        limits: of the size and the time of a body.
        room: what it may take beside the others; None for a request with a good key.
    """

    def __init__(
        self, receive: Receive, headers: Headers, limits: Limits, room: Room | None
    ) -> None:
        self.receive, self.limits, self.room = receive, limits, room
        self.size = self._taken = 0
        self.done = False
        """Whether all of it has been read."""
        length = headers.get("content-length", "")
        self._announced = int(length) if length.isascii() and length.isdigit() else 0
        self._not_sent = headers.get("expect", "").lower() == "100-continue"
        # For the whole body: one that trickles in would otherwise never be too late.
        self._until = asyncio.get_running_loop().time() + limits.timeout

    async def __call__(self) -> Message:
        """The next part.

        Raises:
            RefusedError: 408, it did not come in time; 413, the body is too long; 429, there is no
                room for it beside others.
        """
        if self.done:  # all that can come now is that the client leaves
            return await self.receive()
        if self._announced > self.limits.body:
            raise self._too_long()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._next()
        except TimeoutError:
            raise RefusedError(408, "the request's body did not come in time") from None
        if self.size > self.limits.body:
            raise self._too_long()
        self._take_room()
        return message

    async def drain(self) -> None:
        """Read on for a while, and keep nothing; a body that the client holds back is not asked
        for."""
        if self._not_sent and not self.size:
            return
        most = self.size + _DRAINED
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while not self.done and self.size < most:
                    await self._next()
        except TimeoutError:
            pass

    def give_back(self) -> None:
        """Give the room back: the request has been answered."""
        if self.room is not None:
            self.room.left += self._taken
            self._taken = 0

    async def _next(self) -> Message:
        message = await self.receive()
        self.size += len(message.get("body", b""))
        self.done = not message.get("more_body")
        return message

    def _too_long(self) -> RefusedError:
        most = f"{self.limits.body:,} bytes"
        return RefusedError(413, f"the request is too long; the most is {most}")

    def _take_room(self) -> None:
        if self.room is None:
            return
        more = max(0, self.size - _FREE) - self._taken
        if more > self.room.left:
            raise RefusedError(
                429,
                "too many long requests at once; come again later, or send the API key in the "
                "head (Authorization: Bearer), where it is seen before the body",
                retry_after=1,
            )
        self.room.left -= more
        self._taken += more
