"""Calls into native libraries whose panics must not end a thread.

Libraries written in Rust (sentencex, tokenizers) raise ``pyo3_runtime.PanicException`` if their
code panics. It derives from `BaseException`, so ``except Exception`` does not catch it: the thread
ends, and all threads that wait for it wait for ever.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_NOT_PANICS = (KeyboardInterrupt, SystemExit, GeneratorExit)


class NativeError(Exception):
    """A native library failed in a way that is not the caller's fault.

    The message contains only the kind of failure, because the library's message may quote the text.
    """


def call_native(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a native library and convert a panic into an ordinary exception.

    Args:
        call: the library's function.
        args: passed to it.
        kwargs: passed to it.

    Returns:
        The result of the call. Its ordinary exceptions, and `KeyboardInterrupt`, are not converted.

    Raises:
        NativeError: the library panicked.

    Rust also prints a line about the panic, with its location in the library, to standard error.
    """
    try:
        return call(*args, **kwargs)
    except (Exception, *_NOT_PANICS):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic, whatever the name of its class
        raise NativeError(f"a native library failed: {type(error).__name__}") from None
