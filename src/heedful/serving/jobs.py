"""Entries of the engine's queue: the texts of one request, or a job."""

import contextvars
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import islice
from typing import Any

from heedful.basics.native import NativeError
from heedful.data.sentences import SentenceFailures
from heedful.decoding import SearchOptions
from heedful.inference import Translation
from heedful.inference.splitting import Part
from heedful.inference.texts import SplitText, join_translations, split_into_parts
from heedful.tasks.endpoints import BatchedPredictor

OnPart = Callable[[int, int, SplitText, Translation], None]
"""Called with the index of a text, the index of the part, the cut text, and the translation."""


class EngineFailedError(Exception):
    """The engine's thread failed while it worked on this request."""


class TooLongError(Exception):
    """A job took too long while other work waited."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"stopped after {seconds:g} seconds because other requests are waiting")


class Job:
    """Model work that does not share a batch: a trace, alternatives, a faithfulness figure.

    It runs with the context variables of the thread that submitted it. Its future stays pending
    until the result is set, so that it can be cancelled while the job runs.
    """

    def __init__(self, call: Callable[[], Any], client: str = "") -> None:
        self.call, self.client = call, client
        self.context = contextvars.copy_context()
        self.future: Future[Any] = Future()
        self.arrived = time.monotonic()
        self.started = False
        """Whether the engine has started it."""

    def succeed(self, result: Any) -> None:
        """Set the result, unless the future is cancelled."""
        with suppress(InvalidStateError):
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Set an error, unless the future is done."""
        with suppress(InvalidStateError):
            self.future.set_exception(as_exception(error))


class Texts:
    """The texts of one request, split into items.

    An item is a part of a text; items are numbered across all texts. Threads other than the
    engine's use only ``future``.
    """

    def __init__(
        self,
        translator: BatchedPredictor,
        texts: Sequence[str],
        options: SearchOptions,
        alignments: bool,
        on_part: OnPart | None,
        language: str | None = None,
    ) -> None:
        self.language = language
        self.translator, self.texts, self.options = translator, list(texts), options
        self.alignments, self.on_part = alignments, on_part
        self.future: Future[list[Translation]] = Future()
        self.arrived = time.monotonic()
        self.cuts: list[SplitText] | None = None
        self._positions: list[tuple[int, int]] = []
        self._costs: list[int] = []
        self._translations: list[Translation | None] = []
        self._next = 0
        self._remaining = 0

    @property
    def key(self) -> tuple[int, SearchOptions, bool]:
        """Requests with the same key can share a batch."""
        return id(self.translator), self.options, self.alignments

    @property
    def prepared(self) -> bool:
        """Whether the texts have been split."""
        return self.cuts is not None

    @property
    def has_more(self) -> bool:
        """Whether items are left to take; true before the texts are split."""
        return not self.future.done() and (self.cuts is None or self._next < len(self._positions))

    @property
    def next_cost(self) -> int:
        """Source tokens of the next item times the rows that search needs for it."""
        return self._costs[self._next]

    @property
    def started(self) -> bool:
        """Whether an item has been taken."""
        return self._next > 0

    def prepare_or_fail(self) -> bool:
        """Split the texts if necessary, and return whether items are left to translate."""
        if not self.prepared and not self.future.done():
            try:
                self.prepare()
            except BaseException as error:  # noqa: BLE001 - only this request fails
                self.fail(error)
        return self.has_more

    def prepare(self) -> None:
        """Split the texts. If there is nothing to translate, the result is set."""
        limit = self.translator.max_length - 1  # one for END
        count = self.translator.token_counter(limit)
        failures = SentenceFailures()
        self.cuts = [
            split_into_parts(text, count, limit, self.language, failures) for text in self.texts
        ]
        failures.report(self.translator.notify)
        width = self.options.width
        for text, cut in enumerate(self.cuts):
            self._positions += [(text, part) for part in range(len(cut.parts))]
            self._costs += [(length + 1) * width for length in cut.lengths]
        self._remaining = len(self._positions)
        self._translations = [None] * self._remaining
        if not self._remaining:
            self._set_result()

    def take(self) -> int:
        """Take the next item; returns its index."""
        self._next += 1
        return self._next - 1

    def part(self, item: int) -> Part:
        """The text of an item, and the white space before it."""
        assert self.cuts is not None
        text, part = self._positions[item]
        return self.cuts[text].parts[part]

    def finish(self, item: int, translation: Translation) -> None:
        """Store an item's translation; after the last item, the request is answered."""
        if self.future.done():
            return
        assert self.cuts is not None
        self._translations[item] = translation
        self._remaining -= 1
        if self.on_part is not None:
            text, part = self._positions[item]
            self.on_part(text, part, self.cuts[text], translation)
        if not self._remaining:
            self._set_result()

    def fail(self, error: BaseException) -> None:
        """Set an error, unless the future is done."""
        with suppress(InvalidStateError):
            self.future.set_exception(as_exception(error))

    def _set_result(self) -> None:
        assert self.cuts is not None
        found = iter(self._translations)
        threshold = self.translator.link_threshold
        results = [
            join_translations(
                cut,
                [one for one in islice(found, len(cut.parts)) if one is not None],
                exponent=self.options.length_penalty,
                threshold=threshold,
            )
            for cut in self.cuts
        ]
        with suppress(InvalidStateError):
            self.future.set_result(results)


def as_exception(error: BaseException) -> Exception:
    """The error as an ``Exception``; other exceptions would end the event loop that gets them."""
    return error if isinstance(error, Exception) else NativeError(type(error).__name__)
