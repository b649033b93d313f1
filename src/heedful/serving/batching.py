"""Batches the items of several requests for the same model and search."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from heedful.inference import Translation
from heedful.serving.jobs import Texts
from heedful.serving.scheduling import Scheduler

Taken = Sequence[tuple[Texts, int, int]]
"""For each item: its work, the item's index, and its cost in tokens."""
# Further items of requests that are already in the search join it when 1/8 of its room is free.
_FREE_SHARE = 8


class Clock(Protocol):
    """Measures slices of work."""

    def start_slice(self, taken: Taken) -> None:
        """Record the start of a slice."""
        ...


class RunningSearch:
    """One search that items join while it runs. It is the supplier of texts for the search.

    Args:
        scheduler: the waiting works.
        head: the first work; the items of works with the same key join.
        clock: measures the slices.
    """

    def __init__(self, scheduler: Scheduler, head: Texts, clock: Clock) -> None:
        self._scheduler, self._head, self._clock = scheduler, head, clock
        self._room = head.translator.batch_tokens
        self._held = self._count = 0
        self._items: dict[int, tuple[Texts, int, int]] = {}  # not finished
        self._searched: set[int] = set()

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
        held = len(self._searched)
        first = self._scheduler.first()
        if not isinstance(first, Texts) or first.key != self._head.key:
            return []
        free = self._room - self._held
        inside = any(work is first for work, _, _ in self._items.values())
        if held and inside and free * _FREE_SHARE < self._room:
            return []
        taken = self._scheduler.take_items(self._head, free, first=not held)
        if not taken:
            return []
        entering = dict(enumerate(taken, start=self._count))
        self._count += len(taken)
        self._items.update(entering)
        self._searched.update(entering)
        self._held += sum(cost for _, _, cost in taken)
        self._clock.start_slice(taken)
        return [(key, work.part(item).text) for key, (work, item, _) in entering.items()]

    def left(self, key: int) -> None:
        """Release the room of an item that has left the search."""
        self._searched.remove(key)
        self._held -= self._items[key][2]
        if not self.wanted(key):
            del self._items[key]

    def wanted(self, key: int) -> bool:
        """Whether the item's request is neither answered nor cancelled."""
        return not self._items[key][0].future.done()


def translate_items(taken: Sequence[tuple[Texts, int]]) -> None:
    """Translate a batch of items; if it fails, each alone, so that only the item at fault fails."""
    taken = [(work, item) for work, item in taken if not work.future.done()]
    if not taken:
        return
    first = taken[0][0]
    texts = [work.part(item).text for work, item in taken]
    try:
        found = first.translator.translate(
            texts, options=first.options, alignments=first.alignments
        )
    except BaseException as error:  # noqa: BLE001 - other requests must not fail
        if len(taken) == 1:
            first.fail(error)
            return
        for one in taken:
            translate_items([one])
        return
    for (work, item), translation in zip(taken, found, strict=True):
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
        self._began, self._spent = time.monotonic(), 0.0
        self._before = finished()
        self._taken: Taken = ()

    def start(self) -> None:
        """Record that work begins after an idle time."""
        self._began, self._taken = time.monotonic(), ()

    def start_slice(self, taken: Taken) -> None:
        """Record the start of a slice, and the end of the one before."""
        if self._taken:
            self.end_slice()
        self._taken = taken

    def end_slice(self) -> None:
        """Record the end of a slice."""
        now, count, taken = time.monotonic(), self._finished(), self._taken
        seconds, self._began, self._taken = now - self._began, now, ()
        self._spent += seconds
        if count > self._before:
            self._pace(self._spent / (count - self._before))
            self._before, self._spent = count, 0.0
        self._observe(len(taken), sum(cost for _, _, cost in taken), seconds)
