"""The engine: one thread runs all models for all clients, in batches filled by tokens.

The texts of a request are split into items (lines, or parts of long lines). Items of several
requests with the same model and search options share a batch; requests take turns item by item. A
request that arrives during such a search joins it as soon as there is room. When other work is next
in the queue, no further items join, and the search ends.

An exception of any class fails only the request that caused it. If the thread itself fails, the
requests that it had started are answered with an error at once, and a new thread replaces it.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from heedful.basics.cancellation import CancelledWorkError, cancellable
from heedful.decoding import SearchOptions
from heedful.inference import Translation
from heedful.serving.batching import RunningSearch, SliceClock, translate_items
from heedful.serving.errors import log_failure
from heedful.serving.jobs import EngineFailedError, Job, OnPart, Texts, TooLongError
from heedful.serving.scheduling import Scheduler
from heedful.tasks.endpoints import BatchedPredictor

T = TypeVar("T")
Observe = Callable[[int, int, float], None]
"""Called for each slice with items, tokens without padding, and seconds."""

_LONGEST_RETRY = 60
# Texts with more characters are split in a separate thread, because this may take a second.
_LONG = 5_000
# If a thread fails within this many seconds, it is replaced after a pause of the same length.
_PAUSE = 1.0


class QueueFullError(Exception):
    """The queue has no room for another request."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the queue is full")
        self.retry_after = retry_after
        """Seconds after which the client should retry."""


class Engine:
    """Accepts requests from any thread and returns futures, which can be cancelled at any time.

    Args:
        queue: maximum number of waiting and running requests; further ones are refused.
        gather: seconds that the first waiting request waits for others to share its batch.
        job_time: seconds after which a job ends if other work waits.
        observe: called for each slice of work, in the engine's thread.
        on_waiting: called with the number of waiting and running requests when it changes.
    """

    def __init__(
        self,
        *,
        queue: int = 256,
        gather: float = 0.005,
        job_time: float = 10.0,
        observe: Observe | None = None,
        on_waiting: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.queue, self.gather, self.job_time = queue, gather, job_time
        self._observe = observe or (lambda items, tokens, seconds: None)
        self._on_waiting = on_waiting
        self._scheduler = Scheduler()
        self._lock = threading.Lock()
        self._pending: dict[Future[Any], Texts | Job] = {}  # not yet answered
        self._finished = self._refused = 0
        self._pace = 0.1  # running mean of seconds per request
        self._splitter = ThreadPoolExecutor(1, "heedful-split")
        self._threads = torch.get_num_threads()
        self._start_thread()

    @property
    def waiting(self) -> int:
        """The number of waiting and running requests."""
        return len(self._pending)

    @property
    def alive(self) -> bool:
        """Whether the engine accepts work."""
        return self._thread.is_alive() and not self._scheduler.closed

    @property
    def busy(self) -> bool:
        """Whether the thread is still running, even if the engine is closed."""
        return self._thread.is_alive()

    def translate(
        self,
        translator: BatchedPredictor,
        texts: Sequence[str],
        *,
        options: SearchOptions | None = None,
        alignments: bool = False,
        on_part: OnPart | None = None,
        language: str | None = None,
    ) -> "Future[list[Translation]]":
        """Translate whole texts; line breaks and empty lines are kept.

        Args:
            translator: the model.
            texts: the texts, which are independent of one another.
            options: search options; the translator's own if None.
            alignments: whether to compute word alignments.
            on_part: called in the engine's thread for each finished part of a text, in order.
            language: split lines into sentences by the rules of this language; no split if None.

        Raises:
            QueueFullError: too many requests wait.
        """
        default = translator.options
        work = Texts(translator, texts, options or default, alignments, on_part, language)
        self._enqueue(work)
        return work.future

    def run(self, job: Callable[[], T], client: str = "") -> "Future[T]":
        """Run other model work, which does not share a batch.

        A job that calls `heedful.basics.cancellation.check_cancelled` ends there if its future is
        cancelled. After ``job_time`` seconds, it also ends with `TooLongError` if other work waits.

        Args:
            job: the work.
            client: the client's address; the client that was served longest ago is next.

        Raises:
            QueueFullError: too many requests wait.
        """
        work = Job(job, client)
        self._enqueue(work)
        return work.future

    def close(self, seconds: float = 2.0) -> None:
        """Cancel all requests and stop the thread; wait at most ``seconds`` for running work."""
        self._scheduler.close()
        with self._lock:
            works = list(self._pending.values())
        for work in works:
            work.future.cancel()
        self._splitter.shutdown(wait=False)
        self._thread.join(seconds)

    def _enqueue(self, work: Texts | Job) -> None:
        with self._lock:
            if len(self._pending) >= self.queue or self._scheduler.closed:
                # A refused request finds room once as many requests have finished as were refused.
                self._refused += 1
                seconds = math.ceil(self._refused * self._pace)
                raise QueueFullError(max(1, min(seconds, _LONGEST_RETRY)))
            self._pending[work.future] = work
            self._on_waiting(len(self._pending))
        work.future.add_done_callback(self._on_done)
        if isinstance(work, Texts) and sum(map(len, work.texts)) > _LONG:
            self._splitter.submit(self._split, work)
        else:
            self._scheduler.add(work)

    def _split(self, work: Texts) -> None:
        """Split long texts in a separate thread, so that other requests do not wait."""
        work.prepare_or_fail()
        self._scheduler.add(work)

    def _on_done(self, future: "Future[Any]") -> None:
        with self._lock:
            del self._pending[future]
            self._on_waiting(len(self._pending))
            self._finished += 1
            self._refused = max(0, self._refused - 1)

    # The engine's thread

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._run, name="heedful-model", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001 - waiting requests must be answered
            log_failure("the engine's thread", error)
            self._fail_started()
            if time.monotonic() - began < _PAUSE:
                time.sleep(_PAUSE)
            self._start_thread()

    def _fail_started(self) -> None:
        """Fail the requests that the thread had started; the next thread serves the others."""
        with self._lock:
            works = [work for work in self._pending.values() if work.started]
        for work in works:
            work.fail(EngineFailedError())

    def _serve(self) -> None:
        # Without this, libraries that PyTorch calls would use all cores in a new thread.
        torch.set_num_threads(self._threads)
        clock = SliceClock(self._observe, lambda: self._finished, self._update_pace)
        while (head := self._scheduler.wait()) is not None:
            clock.start()
            if isinstance(head, Job):
                self._scheduler.take_job(head)
                self._run_job(head)
            else:
                time.sleep(max(0.0, head.arrived + self.gather - time.monotonic()))
                self._translate(head, clock)
            clock.end_slice()

    def _translate(self, head: Texts, clock: SliceClock) -> None:
        """Translate the items of the first request, and those that can share its batch."""
        try:
            if head.translator.engine is not None or head.options.sample:
                taken = self._scheduler.take_items(head, head.translator.batch_tokens)
                clock.start_slice(taken)
                translate_items([(work, item) for work, item, _ in taken])
            else:
                RunningSearch(self._scheduler, head, clock).run()
        except Exception as error:  # noqa: BLE001 - the thread must continue for other requests
            log_failure("a slice of work", error)
            head.fail(error)

    def _run_job(self, job: Job) -> None:
        """Run a job until its request is cancelled or its time limit is reached."""
        until = time.monotonic() + self.job_time

        def should_continue() -> bool:
            too_long = time.monotonic() > until and not self._scheduler.empty
            return not job.future.done() and not too_long

        job.started = True
        try:
            job.succeed(job.context.run(_run_cancellable, job.call, should_continue))
        except CancelledWorkError:
            job.fail(TooLongError(self.job_time))
        except BaseException as error:  # noqa: BLE001 - the error belongs to the request
            job.fail(error)

    def _update_pace(self, seconds: float) -> None:
        self._pace += 0.2 * (seconds - self._pace)


def _run_cancellable(call: Callable[[], T], should_continue: Callable[[], bool]) -> T:
    with cancellable(should_continue):
        return call()
