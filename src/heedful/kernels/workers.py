"""A thread pool whose workers each process a part of a batch.

Workers synchronise once, instead of after each operation as PyTorch's own threads do.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import torch


class _ThreadState(threading.local):
    """The pool of a thread. A shared pool could deadlock if two threads wait for its workers."""

    sizes: tuple[int, int] = (0, 0)
    pool: ThreadPoolExecutor | None = None


_thread_state = _ThreadState()


def _reset_after_fork() -> None:
    """A child process does not inherit its parent's threads."""
    global _thread_state
    _thread_state = _ThreadState()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def workers(count: int) -> ThreadPoolExecutor:
    """A pool of ``count`` workers, which share the calling thread's number of PyTorch threads.

    Each thread has one pool. A call with a different number replaces it; the old pool stops when
    its calls are done. Do not keep a reference to a pool.
    """
    sizes = count, max(1, torch.get_num_threads() // count)
    if _thread_state.pool is None or _thread_state.sizes != sizes:
        if _thread_state.pool is not None:
            _thread_state.pool.shutdown(wait=False)
        _thread_state.pool, _thread_state.sizes = _start_pool(*sizes), sizes
    return _thread_state.pool


def _start_pool(count: int, threads: int) -> ThreadPoolExecutor:
    all_started = threading.Barrier(count)

    def begin() -> None:
        # The first call in a thread would overwrite the number with the last one set anywhere.
        torch.get_num_threads()
        torch.set_num_threads(threads)
        all_started.wait()

    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, thread_name_prefix="heedful-worker")
    for call in [pool.submit(begin) for _ in range(count)]:
        call.result()
    # New threads inherit the number that was set last.
    torch.set_num_threads(before)
    return pool
