"""The queue of the engine, which determines the work that runs next.

Requests with texts take turns item by item. Jobs and texts alternate, so that neither delays the
other for more than one turn. Among jobs, that of the client who was served longest ago is next.
"""

import threading
from collections import deque

from heedful.serving.jobs import Job, Texts

_MOST_CLIENTS = 10_000


class Scheduler:
    """A queue: any thread can add work; the engine's thread takes items and jobs."""

    def __init__(self) -> None:
        self.closed = False
        self._more = threading.Condition()
        self._texts: deque[Texts] = deque()
        self._jobs: list[Job] = []
        self._after_job = False
        self._served: dict[str, int] = {}  # client → number of its last turn
        self._count = 0

    def add(self, work: Texts | Job) -> None:
        """Add work to the queue; if the queue is closed, the work is cancelled."""
        with self._more:
            if self.closed:
                work.future.cancel()
            elif isinstance(work, Job):
                self._jobs.append(work)
            else:
                self._texts.append(work)
            self._more.notify()

    def close(self) -> None:
        """Close the queue: no more work is taken."""
        with self._more:
            self.closed = True
            self._more.notify()

    def wait(self) -> Texts | Job | None:
        """Wait for work and return the next; None if the queue is closed."""
        with self._more:
            while (found := self._first()) is None and not self.closed:
                self._more.wait()
            return None if self.closed else found

    def first(self) -> Texts | Job | None:
        """The next work; None if the queue is empty or closed."""
        with self._more:
            return None if self.closed else self._first()

    @property
    def empty(self) -> bool:
        """Whether no work waits."""
        with self._more:
            return self._first() is None

    def take_job(self, job: Job) -> None:
        """Remove a job from the queue and record its client's turn."""
        with self._more:
            self._jobs.remove(job)
            self._after_job = True
            self._count += 1
            if len(self._served) > _MOST_CLIENTS:
                self._served.clear()
            self._served[job.client] = self._count

    def take_items(
        self, head: Texts, room: int, first: bool = True
    ) -> list[tuple[Texts, int, int]]:
        """Take items of all requests with the same key as ``head``, in turns.

        Args:
            head: determines the model and the search options.
            room: maximum tokens of all items.
            first: whether the first item is taken even if it is longer.

        Returns:
            For each item: its work, its index, and its cost in tokens.
        """
        with self._more:
            self._after_job = False
            turns = deque(work for work in self._texts if work.key == head.key)
        items: list[tuple[Texts, int, int]] = []
        tokens = 0
        touched: dict[Texts, None] = {}
        while turns:
            work = turns[0]
            if not work.prepare_or_fail():
                turns.popleft()
                continue
            cost = work.next_cost
            if (items or not first) and tokens + cost > room:
                break
            turns.popleft()
            touched[work] = None
            items.append((work, work.take(), cost))
            tokens += cost
            if work.has_more:
                turns.append(work)
        with self._more:
            # Requests that had a turn queue behind those that had none.
            untouched = [work for work in self._texts if work not in touched]
            again = [work for work in touched if work.has_more]
            self._texts = deque([*untouched, *again])
        return items

    def _first(self) -> Texts | Job | None:
        while self._texts and self._texts[0].future.done():
            self._texts.popleft()
        self._jobs = [job for job in self._jobs if not job.future.done()]
        if self._texts and (self._after_job or not self._jobs):
            return self._texts[0]
        return min(self._jobs, key=lambda job: self._served.get(job.client, 0), default=None)
