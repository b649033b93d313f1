"""The peak of a process's resident memory, from Linux."""

import contextlib
import ctypes
from pathlib import Path

_STATUS, _REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak() -> int | None:
    """Return freed memory to the system and reset the peak of the resident memory.

    Returns:
        The new peak in bytes; None where the system cannot do this.
    """
    if not _REFERENCES.exists():
        return None
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _REFERENCES.write_text("5", encoding="ascii")
    except OSError:
        return None
    return peak_resident()


def peak_resident() -> int | None:
    """Peak resident memory of this process since the last reset, in bytes; None if not Linux.

    ``ru_maxrss`` does not serve here: a new process inherits the peak of the one that started it.
    """
    if not _STATUS.exists():
        return None
    status = _STATUS.read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
