"""Calls into native libraries (sentencex, tokenizers, sentencepiece) that may panic.

A panic of a Rust library reaches Python as ``pyo3_runtime.PanicException``, a `BaseException`:
``except Exception`` does not catch it, and a thread in which it happens ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager

_ORDINARY = (Exception, KeyboardInterrupt, SystemExit, GeneratorExit)


class NativeLibraryError(Exception):
    """A native library panicked."""


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Turn a panic within the block into an ordinary exception.

    Args:
        what: what was being done, for the message: "splitting a text into sentences".

    Raises:
        NativeLibraryError: the library raised something that is neither an `Exception` nor one of
            Python's own `BaseException` classes. All other exceptions pass unchanged.
    """
    try:
        yield
    except _ORDINARY:
        raise
    except BaseException as error:
        raise NativeLibraryError(f"{what}: {type(error).__name__}: {error}") from error
