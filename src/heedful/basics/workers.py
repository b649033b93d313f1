"""Threads that each do some of the work whole, in place of sharing out every single operation.

They wait for one another once, not after each operation.
"""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import torch


def workers(count: int) -> ThreadPoolExecutor:
    """``count`` workers, which have PyTorch's threads of the thread that asks between them."""
    return _workers(count, max(1, torch.get_num_threads() // count), threading.get_ident())


@functools.cache
def _workers(count: int, threads: int, asking: int) -> ThreadPoolExecutor:
    """One pool for each who asks: workers of two who wait for each other would be none."""
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
