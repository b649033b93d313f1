"""The C library's memory allocator."""

import contextlib
import ctypes
import sys


def keep_freed_memory() -> None:
    """Tell glibc to keep large freed blocks instead of returning them to the system.

    Training allocates and frees the same large buffers in every step. Returning them to the system
    would cost a page fault for each page. Without glibc, this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        trim_threshold, mmap_threshold = -1, -3
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, 1 << 30)


def return_freed_memory() -> None:
    """Tell glibc to return the freed memory that it keeps to the system, now."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has the function
        ctypes.CDLL(None).malloc_trim(0)


class FreedMemory:
    """Returns freed memory to the system after every ``limit`` units of work.

    Batches of many different shapes leave holes of many sizes in the memory of a process. Each new
    batch uses other holes, so that the resident memory grows towards the sum of all of them.

    Args:
        limit: units of work, for example tokens.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self._done = limit, 0

    def count(self, work: int) -> None:
        """Add units of work. Threads may call this at the same time."""
        self._done += work
        if self._done >= self.limit:
            self._done = 0
            return_freed_memory()
