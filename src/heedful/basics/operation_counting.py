"""Counting operations in C code, which PyTorch's FLOP counter does not see."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

_listeners: list[Callable[[int], None]] = []
_pauses: list[Callable[[], AbstractContextManager[None]]] = []


def count(operations: int) -> None:
    """Record a number of multiplications and additions of matrix products in C."""
    for listener in _listeners:
        listener(operations)


@contextmanager
def counting(
    listener: Callable[[int], None], pause: Callable[[], AbstractContextManager[None]]
) -> Iterator[None]:
    """Call ``listener`` with each number that is recorded inside the block.

    Args:
        listener: adds a number.
        pause: ignores all operations inside its block; see :func:`repeated`.
    """
    _listeners.append(listener)
    _pauses.append(pause)
    try:
        yield
    finally:
        _listeners.remove(listener)
        _pauses.remove(pause)


@contextmanager
def repeated() -> Iterator[None]:
    """Operations inside the block repeat earlier ones, to save memory, and do not count."""
    with ExitStack() as stack:
        for pause in _pauses:
            stack.enter_context(pause())
        yield
