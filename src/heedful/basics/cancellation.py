"""Cancelling work in progress, in the thread that runs it.

Long work calls :func:`check_cancelled` between its steps or batches. The caller passes a function
to :func:`cancellable` that returns whether the result is still needed. Without it the check does
nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_wanted: ContextVar[Callable[[], bool] | None] = ContextVar("wanted", default=None)


class CancelledWorkError(Exception):
    """The result of the work in progress is no longer needed."""


@contextmanager
def cancellable(wanted: Callable[[], bool]) -> Iterator[None]:
    """Cancel the work in this block and thread as soon as its result is no longer needed.

    Args:
        wanted: returns whether the result is still needed; called between steps, so it must be
            fast.
    """
    before = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(before)


def check_cancelled() -> None:
    """End the work in progress if its result is no longer needed.

    Raises:
        CancelledWorkError: the result is no longer needed.
    """
    wanted = _wanted.get()
    if wanted is not None and not wanted():
        raise CancelledWorkError
