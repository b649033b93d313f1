"""The engine: one thread does all model work, for all clients, in batches filled by tokens.

A request's texts are cut into items (lines, or parts of long ones). Items of several requests that
want the same model and the same search go through it together; requests take turns item by item.
A request that comes while such a search runs enters it as soon as there is room, until other work
is first in line: then the search is brought to its end.

A failure, whatever its class, is that of the request at fault. If the thread itself fails, requests
whose work it had begun are answered at once, and another thread takes over.
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
"""Told of each slice: items, tokens with padding left out, seconds."""

_LONGEST_RETRY = 60
# Texts of more characters are cut in a thread of their own: that may take a second.
_LONG = 5_000
# A thread that fails sooner than this after it began is replaced after a pause.
_PAUSE = 1.0


class QueueFullError(Exception):
    """No further request is taken now."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the queue is full")
        self.retry_after = retry_after
        """Whole seconds after which there may be room."""


class Engine:
    """Takes requests from any thread; answers with futures, which may be cancelled at any time.

    Args:
        queue: requests that may wait or be worked on; further ones are refused.
        gather: seconds that the first waiting request waits for others to join it.
        job_time: seconds after which work that goes alone ends if other work waits.
        observe: told of each slice of work, in the engine's thread.
    """

    def __init__(
        self,
        *,
        queue: int = 256,
        gather: float = 0.005,
        job_time: float = 10.0,
        observe: Observe | None = None,
    ) -> None:
        self.queue, self.gather, self.job_time = queue, gather, job_time
        self._observe = observe or (lambda items, tokens, seconds: None)
        self._turns = Scheduler()
        self._lock = threading.Lock()
        self._open: dict[Future[Any], Texts | Job] = {}  # not answered
        self._finished = self._refused = 0
        self._pace = 0.1  # seconds a request, a running mean
        self._cutter = ThreadPoolExecutor(1, "heedful-cut")
        self._threads = torch.get_num_threads()
        self._begin()

    @property
    def waiting(self) -> int:
        """Requests that wait or are worked on."""
        return len(self._open)

    @property
    def alive(self) -> bool:
        """Whether the thread takes work."""
        return self._thread.is_alive() and not self._turns.closed

    @property
    def busy(self) -> bool:
        """Whether the thread has not ended, be it that it takes no more work."""
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
        """Translate whole texts: line breaks and empty lines stay.

        Args:
            translator: what translates.
            texts: each one for itself.
            options: how to search; the translator's own unless given.
            alignments: whether to find word alignments.
            on_part: called in the engine's thread as each part of a text is finished, in order.
            language: cut lines into sentences as they end in this language; not cut if None.

        Raises:
            QueueFullError: too many requests wait.
        """
        usual = translator.options
        work = Texts(translator, texts, options or usual, alignments, on_part, language)
        self._take(work)
        return work.future

    def run(self, job: Callable[[], T], client: str = "") -> "Future[T]":
        """Do other model work, alone.

        Where it asks `heedful.basics.cancellation.check_cancelled`, it ends if its future is
        cancelled, or (with `TooLongError`) if it has taken ``job_time`` seconds and others wait.

        Args:
            job: what to do.
            client: whose it is; of several clients' jobs that of the one who was served longest
                ago is done first.

        Raises:
            QueueFullError: too many requests wait.
        """
        work = Job(job, client)
        self._take(work)
        return work.future

    def close(self, seconds: float = 2.0) -> None:
        """Drop what waits and end the thread; what it has in hand may take ``seconds``."""
        self._turns.close()
        with self._lock:
            works = list(self._open.values())
        for work in works:
            work.future.cancel()
        self._cutter.shutdown(wait=False)
        self._thread.join(seconds)

    def _take(self, work: Texts | Job) -> None:
        with self._lock:
            if len(self._open) >= self.queue or self._turns.closed:
                # There is room for those refused before as soon as that many have finished.
                self._refused += 1
                seconds = math.ceil(self._refused * self._pace)
                raise QueueFullError(max(1, min(seconds, _LONGEST_RETRY)))
            self._open[work.future] = work
        work.future.add_done_callback(self._leave)
        if isinstance(work, Texts) and sum(map(len, work.texts)) > _LONG:
            self._cutter.submit(self._cut, work)
        else:
            self._turns.add(work)

    def _cut(self, work: Texts) -> None:
        """Cut long texts where that holds up nobody else."""
        work.prepare_or_fail()
        self._turns.add(work)

    def _leave(self, future: "Future[Any]") -> None:
        with self._lock:
            del self._open[future]
            self._finished += 1
            self._refused = max(0, self._refused - 1)

    # The engine's thread

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="heedful-model", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001 - nobody else would answer those who wait
            log_failure("the engine's thread", error)
            self._fail_begun()
            if time.monotonic() - began < _PAUSE:
                time.sleep(_PAUSE)
            self._begin()

    def _fail_begun(self) -> None:
        """Answer those whose work is lost with the thread; the others wait for the next one."""
        with self._lock:
            works = [work for work in self._open.values() if work.begun]
        for work in works:
            work.fail(EngineFailedError())

    def _serve(self) -> None:
        # A thread that has not set it would use all cores in libraries that PyTorch calls.
        torch.set_num_threads(self._threads)
        clock = SliceClock(self._observe, lambda: self._finished, self._note_pace)
        while (head := self._turns.wait()) is not None:
            clock.start()
            if isinstance(head, Job):
                self._turns.take_job(head)
                self._do(head)
            else:
                time.sleep(max(0.0, head.arrived + self.gather - time.monotonic()))
                self._translate(head, clock)
            clock.tell()

    def _translate(self, head: Texts, clock: SliceClock) -> None:
        """Translate the first texts' items, and those of all that may go with them."""
        try:
            if head.translator.engine is not None or head.options.sample:
                taken = self._turns.take_items(head, head.translator.batch_tokens)
                clock.took(taken)
                translate_items([(work, item) for work, item, _ in taken])
            else:
                RunningSearch(self._turns, head, clock).run()
        except Exception as error:  # noqa: BLE001 - the thread has to go on for the others
            log_failure("a slice of work", error)
            head.fail(error)

    def _do(self, job: Job) -> None:
        """Do a job, for as long as its result is wanted."""
        until = time.monotonic() + self.job_time

        def wanted() -> bool:
            too_long = time.monotonic() > until and not self._turns.empty
            return not job.future.done() and not too_long

        job.begun = True
        try:
            job.succeed(job.context.run(_cancellably, job.call, wanted))
        except CancelledWorkError:
            job.fail(TooLongError(self.job_time))
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            job.fail(error)

    def _note_pace(self, seconds: float) -> None:
        self._pace += 0.2 * (seconds - self._pace)


def _cancellably(call: Callable[[], T], wanted: Callable[[], bool]) -> T:
    with cancellable(wanted):
        return call()
