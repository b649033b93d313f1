"""Calls into native libraries whose panics must not end a thread.

Libraries written in Rust (sentencex, tokenizers) raise ``pyo3_runtime.PanicException`` where their
code panics. It derives from `BaseException`, so that ``except Exception`` lets it through: a thread
dies of it, and everybody who waits for that thread waits in vain.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_NOT_PANICS = (KeyboardInterrupt, SystemExit, GeneratorExit)


class NativeError(Exception):
    """A native library failed in a way that is not the caller's fault.

    The message names the kind of failure only: the library's own message may quote the text.
    """


def call_native(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a native library; a panic becomes an ordinary exception.

    Args:
        call: the library's function.
        args: passed to it.
        kwargs: passed to it.

    Returns:
        What it returns. Its ordinary exceptions, and `KeyboardInterrupt`, pass unchanged.

    Raises:
        NativeError: it panicked.

    Rust also prints a line about the panic, with its place in the library, to standard error.
    """
    try:
        return call(*args, **kwargs)
    except (Exception, *_NOT_PANICS):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic, whatever its class is called
        raise NativeError(f"a native library failed: {type(error).__name__}") from None
