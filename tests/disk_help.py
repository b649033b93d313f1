"""Files of tests are not forced to the disk.

``os.fsync`` takes some milliseconds, and a training calls it about 50 times. Files outlast the end
of a process without it; it is for the end of power, which no test brings about. The calls and
their order are tested in ``test_files.py``. HEEDFUL_FSYNC=1 runs the tests with the original.
"""

import os
from collections.abc import Callable

WANTED = bool(os.environ.get("HEEDFUL_FSYNC"))


def without_waiting(fsync: Callable[[int], None]) -> Callable[[int], None]:
    """``fsync``, or a function that only checks that the file is open."""

    def checked(file: int) -> None:
        os.fstat(file)

    return fsync if WANTED else checked
