"""What the engine's queue holds: the texts of one request, or one other piece of model work."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import islice
from typing import Any

from heedful.decoding import SearchOptions
from heedful.inference import Translation, Translator
from heedful.inference.splitting import Part
from heedful.inference.texts import Cut, cut_text, join_translations

OnPart = Callable[[int, int, Cut, Translation], None]
"""Called with a text's index, its part's index, the text as it was cut, and the translation."""


class Job:
    """Model work that goes alone: a trace, alternatives, a faithfulness figure."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.future: Future[Any] = Future()
        self.arrived = time.monotonic()

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless it is answered."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class Texts:
    """The texts of one request, item by item.

    An item is a part of a text; items are numbered through all texts. Only the engine's thread
    uses anything but ``future``.
    """

    def __init__(
        self,
        translator: Translator,
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
        self.cuts: list[Cut] | None = None
        self._places: list[tuple[int, int]] = []
        self._costs: list[int] = []
        self._found: list[Translation | None] = []
        self._next = 0
        self._left = 0

    @property
    def key(self) -> tuple[int, SearchOptions, bool]:
        """Works of the same key may go through the model together."""
        return id(self.translator), self.options, self.alignments

    @property
    def prepared(self) -> bool:
        """Whether the texts have been cut."""
        return self.cuts is not None

    @property
    def has_more(self) -> bool:
        """Whether an item has not been taken; one that is not prepared has."""
        return not self.future.done() and (self.cuts is None or self._next < len(self._places))

    @property
    def next_cost(self) -> int:
        """Source tokens of the next item times the rows that search needs for it."""
        return self._costs[self._next]

    def prepare(self) -> None:
        """Cut the texts; where nothing in them is to be translated, they are the result."""
        tokeniser = self.translator.tokenisers.source
        limit = self.translator.max_length - 1  # END takes one
        self.cuts = [cut_text(text, tokeniser, limit, self.language) for text in self.texts]
        width = self.options.width
        for text, cut in enumerate(self.cuts):
            self._places += [(text, part) for part in range(len(cut.parts))]
            self._costs += [(length + 1) * width for length in cut.lengths]
        self._left = len(self._places)
        self._found = [None] * self._left
        if not self._left:
            self._deliver()

    def take(self) -> int:
        """The next item's number."""
        self._next += 1
        return self._next - 1

    def part(self, item: int) -> Part:
        """An item's text, and what stands before it."""
        assert self.cuts is not None
        text, part = self._places[item]
        return self.cuts[text].parts[part]

    def finish(self, item: int, translation: Translation) -> None:
        """Keep an item's translation; with the last one, the request is answered."""
        if self.future.done():
            return
        assert self.cuts is not None
        self._found[item] = translation
        self._left -= 1
        if self.on_part is not None:
            text, part = self._places[item]
            self.on_part(text, part, self.cuts[text], translation)
        if not self._left:
            self._deliver()

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless nobody waits any more."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def _deliver(self) -> None:
        assert self.cuts is not None
        found = iter(self._found)
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
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_result(results)
