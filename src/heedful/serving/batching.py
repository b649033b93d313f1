"""Batches the items of several requests for the same model and search."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from heedful.inference import Translation
from heedful.serving.jobs import Texts
from heedful.serving.scheduling import Scheduler

Items = Sequence[tuple[Texts, int, int]]
"""For each item: its request, its index in the request, and its cost in tokens."""
# More items of a request that is already in the search join when 1/8 of its tokens are free.
_FREE_SHARE = 8


class Clock(Protocol):
    """Measures slices of work."""

    def start_slice(self, items: Items) -> None:
        """Record the start of a slice."""
        ...


class RunningSearch:
    """A search that items can join while it runs (continuous batching).

    Args:
        scheduler: the queue of requests.
        head: the first request; items of requests with the same key join.
        clock: measures the slices.
    """

    def __init__(self, scheduler: Scheduler, head: Texts, clock: Clock) -> None:
        self._scheduler, self._head, self._clock = scheduler, head, clock
        self._max_tokens = head.translator.batch_tokens
        self._tokens = self._next_key = 0
        self._items: dict[int, tuple[Texts, int, int]] = {}  # not finished
        self._active: set[int] = set()

    def run(self) -> None:
        """Search until all items are done; if the search fails, translate each item alone."""
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
        except BaseException:  # including a panic of a native library
            if not self._items:
                raise
            for work, item, _ in self._items.values():  # only the item at fault fails alone
                translate_items([(work, item)])

    def next(self) -> list[tuple[int, str]]:
        """The items that join the search now."""
        active = len(self._active)
        first = self._scheduler.first()
        if not isinstance(first, Texts) or first.key != self._head.key:
            return []
        free = self._max_tokens - self._tokens
        inside = any(work is first for work, _, _ in self._items.values())
        if active and inside and free * _FREE_SHARE < self._max_tokens:
            return []
        items = self._scheduler.take_items(self._head, free, first=not active)
        if not items:
            return []
        joining = dict(enumerate(items, start=self._next_key))
        self._next_key += len(items)
        self._items.update(joining)
        self._active.update(joining)
        self._tokens += sum(cost for _, _, cost in items)
        self._clock.start_slice(items)
        return [(key, work.part(item).text) for key, (work, item, _) in joining.items()]

    def left(self, key: int) -> None:
        """Release the tokens of an item that has left the search."""
        self._active.remove(key)
        self._tokens -= self._items[key][2]
        if not self.wanted(key):
            del self._items[key]

    def wanted(self, key: int) -> bool:
        """Whether the item's request is neither answered nor cancelled."""
        return not self._items[key][0].future.done()


def translate_items(items: Sequence[tuple[Texts, int]]) -> None:
    """Translate a batch of items; if it fails, each alone, so that only the item at fault fails."""
    items = [(work, item) for work, item in items if not work.future.done()]
    if not items:
        return
    first = items[0][0]
    texts = [work.part(item).text for work, item in items]
    try:
        found = first.translator.translate(
            texts, options=first.options, alignments=first.alignments
        )
    except BaseException as error:  # noqa: BLE001 - other requests must not fail
        if len(items) == 1:
            first.fail(error)
            return
        for one in items:
            translate_items([one])
        return
    for (work, item), translation in zip(items, found, strict=True):
        _finish(work, item, translation)


def _finish(work: Texts, item: int, translation: Translation) -> None:
    """Store an item's translation; an error fails only its own request."""
    try:
        work.finish(item, translation)
    except BaseException as error:  # noqa: BLE001 - as above
        work.fail(error)


class SliceClock:
    """Measures each slice of the engine's work: its items, its tokens and its seconds.

    Args:
        observe: called for each slice with items, tokens without padding, and seconds.
        finished: returns the number of finished requests.
        pace: called with the mean seconds per request since its last call.
    """

    def __init__(
        self,
        observe: Callable[[int, int, float], None],
        finished: Callable[[], int],
        pace: Callable[[float], None],
    ) -> None:
        self._observe, self._finished, self._pace = observe, finished, pace
        self._start, self._seconds = time.monotonic(), 0.0
        self._counted = finished()
        self._slice: Items = ()

    def start(self) -> None:
        """Record that work begins after an idle time."""
        self._start, self._slice = time.monotonic(), ()

    def start_slice(self, items: Items) -> None:
        """Record the start of a slice, and the end of the one before."""
        if self._slice:
            self.end_slice()
        self._slice = items

    def end_slice(self) -> None:
        """Record the end of a slice."""
        now, count, items = time.monotonic(), self._finished(), self._slice
        seconds, self._start, self._slice = now - self._start, now, ()
        self._seconds += seconds
        if count > self._counted:
            self._pace(self._seconds / (count - self._counted))
            self._counted, self._seconds = count, 0.0
        self._observe(len(items), sum(cost for _, _, cost in items), seconds)
