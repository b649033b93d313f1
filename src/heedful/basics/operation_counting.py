"""Counting operations in C code, which PyTorch's FLOP counter does not see."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[int], None]] = []


def count(operations: int) -> None:
    """Record a number of multiplications and additions of matrix products in C."""
    for listener in _listeners:
        listener(operations)


@contextmanager
def counting(listener: Callable[[int], None]) -> Iterator[None]:
    """Call ``listener`` with each number that is recorded inside the block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
