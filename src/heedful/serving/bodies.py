"""Request bodies, read within limits of size, time and total memory."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from heedful.serving.errors import RefusedError
from heedful.serving.limits import Limits

_UNCOUNTED = 64 << 10
"""Bytes of each body that do not count towards the total."""
# After a refusal, up to this many bytes are read and discarded within this time, because many
# clients read the response only after they have sent the whole body.
_MAX_DRAINED = 16 << 20
_DRAIN_SECONDS = 2.0


class BodyBudget:
    """The bytes left for long bodies of requests without a valid key in their headers."""

    def __init__(self, size: int) -> None:
        self.remaining = size


class Body:
    """The ASGI ``receive`` of a request, with the limits of its body.

    Args:
        receive: returns the parts of the body.
        headers: the headers of the request.
        limits: the limits on the size and the time of a body.
        budget: the shared limit on long bodies; None for a request with a valid key.
    """

    def __init__(
        self, receive: Receive, headers: Headers, limits: Limits, budget: BodyBudget | None
    ) -> None:
        self.receive, self.limits, self.budget = receive, limits, budget
        self.size = self._reserved = 0
        self.done = False
        """Whether all of it has been read."""
        length = headers.get("content-length", "")
        self._announced = int(length) if length.isascii() and length.isdigit() else 0
        self._not_sent = headers.get("expect", "").lower() == "100-continue"
        # The time limit is for the whole body; a slow client could otherwise send it forever.
        self._until = asyncio.get_running_loop().time() + limits.timeout

    async def __call__(self) -> Message:
        """The next part.

        Raises:
            RefusedError: 408, the body did not arrive in time; 413, the body is too long; 429, too
                many long bodies at once.
        """
        if self.done:  # the only remaining message is a disconnect
            return await self.receive()
        if self._announced > self.limits.body:
            raise self._too_long()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._next()
        except TimeoutError:
            raise RefusedError(408, "the request body did not arrive in time") from None
        if self.size > self.limits.body:
            raise self._too_long()
        self._reserve()
        return message

    async def drain(self) -> None:
        """Read and discard the rest of a refused body, for a limited time.

        If the client waits for ``100 Continue``, its body is not requested."""
        if self._not_sent and not self.size:
            return
        most = self.size + _MAX_DRAINED
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while not self.done and self.size < most:
                    await self._next()
        except TimeoutError:
            pass

    def release(self) -> None:
        """Release the body's share of the budget, once the request is answered."""
        if self.budget is not None:
            self.budget.remaining += self._reserved
            self._reserved = 0

    async def _next(self) -> Message:
        message = await self.receive()
        self.size += len(message.get("body", b""))
        self.done = not message.get("more_body")
        return message

    def _too_long(self) -> RefusedError:
        most = f"{self.limits.body:,} bytes"
        return RefusedError(413, f"the request is too long; the maximum is {most}")

    def _reserve(self) -> None:
        if self.budget is None:
            return
        more = max(0, self.size - _UNCOUNTED) - self._reserved
        if more > self.budget.remaining:
            raise RefusedError(
                429,
                "too many long requests at once; try again later, or send the API key in a header "
                "(Authorization: Bearer)",
                retry_after=1,
            )
        self.budget.remaining -= more
        self._reserved += more
