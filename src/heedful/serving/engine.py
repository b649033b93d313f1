"""The engine: one thread does all model work, for all clients, in batches filled by tokens.

A request's texts are cut into items (lines, or parts of long ones). Items of several requests that
want the same model and the same search go through it together; requests take turns item by item.
A request that comes while such a search runs enters it as soon as there is room, until other work
is first in line: then the search is brought to its end.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from heedful.decoding import SearchOptions
from heedful.inference import Translation, Translator
from heedful.serving.saying import log_failure
from heedful.serving.work import Job, OnPart, Texts

T = TypeVar("T")
Observe = Callable[[int, int, float], None]
"""Told of each slice: items, tokens with padding left out, seconds."""

_LONGEST_RETRY = 60
# Items of requests that are under way enter a search when this share of its room is free.
_FREE_SHARE = 8
# Texts of more characters are cut in a thread of their own: that may take a second.
_LONG = 5_000


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
        observe: told of each slice of work, in the engine's thread.
    """

    def __init__(
        self, *, queue: int = 256, gather: float = 0.005, observe: Observe | None = None
    ) -> None:
        self.queue, self.gather = queue, gather
        self._observe = observe or (lambda items, tokens, seconds: None)
        self._works: deque[Texts | Job] = deque()
        self._more = threading.Condition()
        self._count_lock = threading.Lock()
        self._waiting = 0
        self._pace = 0.1  # seconds a request, a running mean
        self._closed = False
        self._cutter = ThreadPoolExecutor(1, "heedful-cut")
        self._threads = torch.get_num_threads()
        self._thread = threading.Thread(target=self._serve, name="heedful-model", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Requests that wait or are worked on."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether the thread takes work."""
        return self._thread.is_alive() and not self._closed

    @property
    def busy(self) -> bool:
        """Whether the thread has not ended, be it that it takes no more work."""
        return self._thread.is_alive()

    def translate(
        self,
        translator: Translator,
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

    def run(self, job: Callable[[], T]) -> "Future[T]":
        """Do other model work, alone.

        Raises:
            QueueFullError: too many requests wait.
        """
        work = Job(job)
        self._take(work)
        return work.future

    def close(self, seconds: float = 2.0) -> None:
        """Drop what waits and end the thread; what it has in hand may take ``seconds``."""
        with self._more:
            self._closed = True
            works = list(self._works)
            self._more.notify()
        for work in works:
            work.future.cancel()
        self._cutter.shutdown(wait=False)
        self._thread.join(seconds)

    def _take(self, work: Texts | Job) -> None:
        with self._count_lock:
            if self._waiting >= self.queue or self._closed:
                seconds = math.ceil(self._waiting * self._pace)
                raise QueueFullError(max(1, min(seconds, _LONGEST_RETRY)))
            self._waiting += 1
        work.future.add_done_callback(self._leave)
        if isinstance(work, Texts) and sum(map(len, work.texts)) > _LONG:
            self._cutter.submit(self._cut, work)
        else:
            self._line_up(work)

    def _cut(self, work: Texts) -> None:
        """Cut long texts where that holds up nobody else."""
        if not work.future.done():
            _prepared(work)
        self._line_up(work)

    def _line_up(self, work: Texts | Job) -> None:
        with self._more:
            if self._closed:
                work.future.cancel()
            self._works.append(work)
            self._more.notify()

    def _leave(self, future: "Future[Any]") -> None:
        with self._count_lock:
            self._waiting -= 1

    # The engine's thread

    def _serve(self) -> None:
        # A thread that has not set it would use all cores in libraries that PyTorch calls.
        torch.set_num_threads(self._threads)
        while True:
            with self._more:
                while not self._works and not self._closed:
                    self._more.wait()
                if self._closed:
                    return
                head = self._works[0]
            if isinstance(head, Texts):
                time.sleep(max(0.0, head.arrived + self.gather - time.monotonic()))
            try:
                self._slice()
            except Exception as error:  # noqa: BLE001 - the thread has to go on for the others
                log_failure("a slice of work", error)
                head.fail(error)

    def _slice(self) -> None:
        """Take the first work's items, and those of all that may go with it, and do them."""
        with self._more:
            self._works = deque(work for work in self._works if not work.future.done())
            if not self._works:
                return
            head = self._works[0]
            if isinstance(head, Job):
                self._works.popleft()
        clock = _Clock(self)
        if isinstance(head, Job):
            _do(head)
        elif head.translator.engine is not None or head.options.sample:
            taken = self._items(head, head.translator.batch_tokens)
            clock.took(taken)
            _translate([(work, item) for work, item, _ in taken])
        else:
            running = _Running(self, head, clock)
            running.run()
        clock.tell()

    def _items(self, head: Texts, room: int, first: bool = True) -> list[tuple[Texts, int, int]]:
        """Items of all works that go with ``head``, in turns, and their tokens, up to ``room``; the
        first of all however long it is."""
        with self._more:
            turns = deque(w for w in self._works if isinstance(w, Texts) and w.key == head.key)
        taken: list[tuple[Texts, int, int]] = []
        tokens = 0
        touched: dict[Texts, None] = {}
        while turns:
            work = turns[0]
            if not _prepared(work):
                turns.popleft()
                continue
            cost = work.next_cost
            if (taken or not first) and tokens + cost > room:
                break
            turns.popleft()
            touched[work] = None
            taken.append((work, work.take(), cost))
            tokens += cost
            if work.has_more:
                turns.append(work)
        with self._more:
            # Those that had a turn go behind those that had none.
            untouched = [work for work in self._works if work not in touched]
            again = [work for work in touched if work.has_more]
            self._works = deque([*untouched, *again])
        return taken

    def _first_in_line(self) -> Texts | Job | None:
        """Whose turn it is; None also when no more work is taken."""
        with self._more:
            while self._works and self._works[0].future.done():
                self._works.popleft()
            return self._works[0] if self._works and not self._closed else None


class _Clock:
    """Tells the engine's figures: what was taken, and how long it took until the next was."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._began, self._before = time.monotonic(), engine.waiting
        self._taken: Sequence[tuple[Texts, int, int]] = ()

    def took(self, taken: Sequence[tuple[Texts, int, int]]) -> None:
        """Take note of a slice of work that begins."""
        if self._taken:
            self.tell()
        self._taken = taken

    def tell(self) -> None:
        """Take note of its end."""
        engine, now = self._engine, time.monotonic()
        seconds, finished = now - self._began, max(1, self._before - engine.waiting)
        engine._pace += 0.2 * (seconds / finished - engine._pace)
        tokens = sum(cost for _, _, cost in self._taken)
        engine._observe(len(self._taken), tokens, seconds)
        self._began, self._before, self._taken = now, engine.waiting, ()


class _Running:
    """One search, which items enter while it runs: a supplier of texts.

    Args:
        engine: whose works wait.
        head: one of those whose items enter.
        clock: told of those that do.
    """

    def __init__(self, engine: Engine, head: Texts, clock: _Clock) -> None:
        self._engine, self._head, self._clock = engine, head, clock
        self._room = head.translator.batch_tokens
        self._held = self._count = 0
        self._items: dict[int, tuple[Texts, int, int]] = {}  # not finished
        self._searched: set[int] = set()

    def run(self) -> None:
        """Search until nothing is under way; if that fails, each item alone."""
        head = self._head
        translator = head.translator
        try:
            with translator.ready():
                for found in translator.translate_running(
                    self, options=head.options, alignments=head.alignments
                ):
                    for key, translation in found:
                        if key in self._items:
                            work, item, _ = self._items.pop(key)
                            _finish(work, item, translation)
        except Exception:
            if not self._items:
                raise
            for work, item, _ in self._items.values():  # each alone shows whose it is
                _translate([(work, item)])

    def next(self) -> list[tuple[int, str]]:
        """The items that enter now."""
        engine, held = self._engine, len(self._searched)
        first = engine._first_in_line()
        if not isinstance(first, Texts) or first.key != self._head.key:
            return []
        free = self._room - self._held
        inside = any(work is first for work, _, _ in self._items.values())
        if held and inside and free * _FREE_SHARE < self._room:
            return []
        taken = engine._items(self._head, free, first=not held)
        if not taken:
            return []
        self._clock.took(taken)
        entering = dict(enumerate(taken, start=self._count))
        self._count += len(taken)
        self._items.update(entering)
        self._searched.update(entering)
        self._held += sum(cost for _, _, cost in taken)
        return [(key, work.part(item).text) for key, (work, item, _) in entering.items()]

    def left(self, key: int) -> None:
        """An item's search has ended."""
        self._searched.remove(key)
        self._held -= self._items[key][2]
        if not self.wanted(key):
            del self._items[key]

    def wanted(self, key: int) -> bool:
        """Whether its request has not been answered, or cancelled."""
        return not self._items[key][0].future.done()


def _prepared(work: Texts) -> bool:
    """Cut a work's texts when its first turn comes; whether there is something to translate."""
    if not work.prepared:
        try:
            work.prepare()
        except Exception as error:  # noqa: BLE001 - it belongs to this request alone
            work.fail(error)
    return work.has_more


def _translate(taken: Sequence[tuple[Texts, int]]) -> None:
    """Translate items together; if that fails, each alone, so that only the guilty one fails."""
    taken = [(work, item) for work, item in taken if not work.future.done()]
    if not taken:
        return
    first = taken[0][0]
    texts = [work.part(item).text for work, item in taken]
    try:
        found = first.translator.translate(
            texts, options=first.options, alignments=first.alignments
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, other requests go on
        if len(taken) == 1:
            first.fail(error)
            return
        for one in taken:
            _translate([one])
        return
    for (work, item), translation in zip(taken, found, strict=True):
        _finish(work, item, translation)


def _finish(work: Texts, item: int, translation: Translation) -> None:
    """Hand an item's translation on; what goes wrong there is its request's alone."""
    try:
        work.finish(item, translation)
    except Exception as error:  # noqa: BLE001 - as above
        work.fail(error)


def _do(job: Job) -> None:
    if not job.future.set_running_or_notify_cancel():
        return
    try:
        job.future.set_result(job.call())
    except Exception as error:  # noqa: BLE001 - it is the caller's
        job.fail(error)
