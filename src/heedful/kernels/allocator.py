"""The C library's memory allocator."""

import contextlib
import ctypes
import sys


def keep_freed_memory() -> None:
    """Tell glibc to keep large freed blocks instead of giving each back to the system.

    Training frees and takes the same large buffers at every step; giving them back costs a page
    fault a page. Elsewhere than glibc this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        trim_threshold, mmap_threshold = -1, -3
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, 1 << 30)
