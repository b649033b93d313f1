"""Cancelling work that is under way, in the thread that does it.

Work that takes long asks :func:`check_cancelled` between its steps or batches. Whoever starts it
says, by :func:`cancellable`, whether its result is still wanted. Without that the check does
nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_wanted: ContextVar[Callable[[], bool] | None] = ContextVar("wanted", default=None)


class CancelledWorkError(Exception):
    """The result of the work that is under way is not wanted any more."""


@contextmanager
def cancellable(wanted: Callable[[], bool]) -> Iterator[None]:
    """Let work in this block, and in this thread, end as soon as its result is not wanted.

    Args:
        wanted: asked between steps, so it has to be fast.
    """
    before = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(before)


def check_cancelled() -> None:
    """End the work under way if its result is not wanted any more.

    Raises:
        CancelledWorkError: it is not.
    """
    wanted = _wanted.get()
    if wanted is not None and not wanted():
        raise CancelledWorkError
