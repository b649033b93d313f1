"""The memory of this machine or container."""

import contextlib
import os
from pathlib import Path

_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def machine_memory() -> int | None:
    """Bytes of memory, or the container's limit if it is lower; None if unknown."""
    known = []
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            known.append(int(path.read_text(encoding="ascii")))
    return min(known) if known else None


def readable_size(size: int) -> str:
    """A number of bytes in readable units: "3.2 GiB"."""
    return f"{size / 2**30:,.1f} GiB"
