"""HTTP errors with one-line messages, and logs without texts of clients."""

import logging
import traceback
from typing import Any

from starlette.responses import JSONResponse

log = logging.getLogger("heedful.serving")
_MAX_LENGTH = 60
_LONGEST = 4_000
"""Longest error message in characters."""
_MAX_FRAMES = 8


class RefusedError(Exception):
    """An HTTP error: a status and a message of one line."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after

    def response(self) -> JSONResponse:
        """The HTTP response."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return error_response(self.status, self.message, headers)


def error_response(
    status: int, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    """A response ``{"error": message}`` with a status; the message is made one line of text."""
    valid = message[:_LONGEST].encode("utf-8", "backslashreplace").decode()
    line = " ".join(valid.split()) + ("…" if len(message) > _LONGEST else "")
    return JSONResponse({"error": line}, status_code=status, headers=headers)


def printable(value: Any) -> str:
    """A client's value for a message or a log: shortened, on one line, escaped, valid Unicode."""
    text = str(value)
    short = text[:_MAX_LENGTH] + ("…" if len(text) > _MAX_LENGTH else "")
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "backslashreplace").decode()
        for one in short
    )


def log_failure(what: str, error: BaseException) -> None:
    """Log an internal error: class and traceback, but no message, which may contain a text."""
    places = "".join(traceback.format_tb(error.__traceback__)[-_MAX_FRAMES:])
    log.error("%s failed: %s\n%s", what, type(error).__name__, places.rstrip())
