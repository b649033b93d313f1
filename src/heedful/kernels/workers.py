"""Worker threads that each do a part of the work, instead of sharing every single operation.

They synchronise once instead of after each operation.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import torch


class _Own(threading.local):
    """A thread's own pool: workers of two threads that wait for each other would be none."""

    asked: tuple[int, int] = (0, 0)
    pool: ThreadPoolExecutor | None = None


_own = _Own()


def _forget() -> None:
    """A child process does not inherit its parent's threads."""
    global _own
    _own = _Own()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def workers(count: int) -> ThreadPoolExecutor:
    """``count`` workers, which have PyTorch's threads of the thread that asks between them.

    A thread has one pool. Another number ends it when its calls are done: keep no pool.
    """
    asked = count, max(1, torch.get_num_threads() // count)
    if _own.pool is None or _own.asked != asked:
        if _own.pool is not None:
            _own.pool.shutdown(wait=False)
        _own.pool, _own.asked = _made(*asked), asked
    return _own.pool


def _made(count: int, threads: int) -> ThreadPoolExecutor:
    all_there = threading.Barrier(count)

    def begin() -> None:
        # Asked first: at its first use a thread takes what was set last, in any thread.
        torch.get_num_threads()
        torch.set_num_threads(threads)
        all_there.wait()

    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, thread_name_prefix="heedful-worker")
    for call in [pool.submit(begin) for _ in range(count)]:
        call.result()
    # What was set last is what threads that begin later take.
    torch.set_num_threads(before)
    return pool
