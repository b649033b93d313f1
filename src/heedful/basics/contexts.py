"""Values per thread or asyncio task, and work that runs with its caller's context."""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ThreadValue(threading.local):
    """A thread's copy of the value of a ``ContextVar``, for code that is traced.

    ``torch.compile`` cannot trace ``ContextVar.get``. It guards the attributes of a
    ``threading.local``, so a compiled graph is used only in threads that have its value.

    Args:
        value: the initial value in each thread.
    """

    def __init__(self, value: Any) -> None:
        # Called again in each thread. A class attribute would be a constant to torch.compile.
        self.value = value


def submit(
    pool: Executor, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> "Future[T]":
    """``pool.submit``, with the caller's context variables in the pool's thread."""
    context = contextvars.copy_context()
    return pool.submit(lambda: context.run(function, *args, **kwargs))
