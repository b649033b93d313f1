"""Batches the items of several requests for the same model and search."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from heedful.inference import Translation
from heedful.serving.jobs import Texts
from heedful.serving.scheduling import Scheduler

Taken = Sequence[tuple[Texts, int, int]]
"""Works, the numbers of their items, and the items' tokens."""
# Items of requests that are under way enter a search when this share of its room is free.
_FREE_SHARE = 8


class Clock(Protocol):
    """Measures slices of work."""

    def took(self, taken: Taken) -> None:
        """Take note of a slice that begins."""
        ...


class RunningSearch:
    """One search, which items enter while it runs: a supplier of texts.

    Args:
        turns: the works that wait.
        head: one of those whose items enter.
        clock: told of those that do.
    """

    def __init__(self, turns: Scheduler, head: Texts, clock: Clock) -> None:
        self._turns, self._head, self._clock = turns, head, clock
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
        except BaseException:  # a panic of a native library among them
            if not self._items:
                raise
            for work, item, _ in self._items.values():  # each alone shows whose it is
                translate_items([(work, item)])

    def next(self) -> list[tuple[int, str]]:
        """The items that enter now."""
        held = len(self._searched)
        first = self._turns.first()
        if not isinstance(first, Texts) or first.key != self._head.key:
            return []
        free = self._room - self._held
        inside = any(work is first for work, _, _ in self._items.values())
        if held and inside and free * _FREE_SHARE < self._room:
            return []
        taken = self._turns.take_items(self._head, free, first=not held)
        if not taken:
            return []
        entering = dict(enumerate(taken, start=self._count))
        self._count += len(taken)
        self._items.update(entering)
        self._searched.update(entering)
        self._held += sum(cost for _, _, cost in taken)
        self._clock.took(taken)
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


def translate_items(taken: Sequence[tuple[Texts, int]]) -> None:
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
    except BaseException as error:  # noqa: BLE001 - whatever it is, other requests go on
        if len(taken) == 1:
            first.fail(error)
            return
        for one in taken:
            translate_items([one])
        return
    for (work, item), translation in zip(taken, found, strict=True):
        _finish(work, item, translation)


def _finish(work: Texts, item: int, translation: Translation) -> None:
    """Hand an item's translation on; what goes wrong there is its request's alone."""
    try:
        work.finish(item, translation)
    except BaseException as error:  # noqa: BLE001 - as above
        work.fail(error)


class SliceClock:
    """Tells the engine's figures: what was taken, and how long it took until the next was.

    Args:
        observe: told of each slice: items, tokens with padding left out, seconds.
        finished: how many requests have been finished so far.
        pace: told how many seconds a request took.
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
        """Take note that work begins, after a time without any."""
        self._began, self._taken = time.monotonic(), ()

    def took(self, taken: Taken) -> None:
        """Take note of a slice of work that begins."""
        if self._taken:
            self.tell()
        self._taken = taken

    def tell(self) -> None:
        """Take note of its end."""
        now, count, taken = time.monotonic(), self._finished(), self._taken
        seconds, self._began, self._taken = now - self._began, now, ()
        self._spent += seconds
        if count > self._before:
            self._pace(self._spent / (count - self._before))
            self._before, self._spent = count, 0.0
        self._observe(len(taken), sum(cost for _, _, cost in taken), seconds)
