"""Translates a window of texts: splits long texts, sorts, batches and reassembles them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import replace

import torch

from heedful.attention.watching import seen_from_outside
from heedful.basics.contexts import submit
from heedful.decoding import SearchOptions
from heedful.inference.assembly import PartResult, assemble
from heedful.inference.batches import Item, token_batches
from heedful.inference.searcher import Searcher
from heedful.inference.splitting import Part, split_lines, split_text
from heedful.inference.translation import Translation
from heedful.inference.word_alignment import WordAlignment
from heedful.kernels.workers import workers

_FEWEST = 1024
"""Minimum size of a worker's batch, in source tokens times beam."""
_EACH = 3
"""Minimum number of batches per worker, so that workers end at about the same time."""
_SMALL = 16_000_000
"""Maximum parameters of models that are searched by several workers, because their weights fit into
the processor's caches; for larger models, all threads compute each step together."""

Advance = Callable[[int], None]
"""Called with the number of texts that were finished since the last call."""


class Window:
    """Texts that are sorted and batched together."""

    def __init__(
        self,
        translator: Searcher,
        texts: list[str],
        start: int,
        options: SearchOptions,
        scores: bool,
        alignments: bool,
        advance: Advance | None,
    ) -> None:
        self.translator, self.texts, self.start = translator, texts, start
        self.options, self.scores, self.alignments = options, scores, alignments
        self.advance = advance or (lambda count: None)
        self.parts: dict[int, list[Part]] = {}
        self.after: dict[int, str] = {}
        """The white space after the last part of a text."""
        self.lines: dict[int, int] = {}
        """Number of lines of a text that are translated separately, if none is too long."""
        self.found: dict[tuple[int, int], PartResult] = {}

    def translate(self) -> list[Translation]:
        """The translations in the texts' order."""
        items = self._items()
        missing = Counter(item.line for item in items)
        self.advance(len(self.texts) - len(missing))
        width, size = self.options.width, self.translator.batch_tokens
        count = self._workers(items)
        if count > 1:
            size = min(size, _tokens(items) * width // (_EACH * count))
        with self.translator.ready():
            for batch in self._searched(list(token_batches(items, width, size)), count):
                missing.subtract(item.line for item in batch)
                self.advance(sum(not missing[line] for line in {item.line for item in batch}))
        return [self._assembled(line) for line in range(len(self.texts))]

    def _items(self) -> list[Item]:
        """The items to translate: each text that is not empty, split if too long.

        If spans are protected, line breaks and outer white space are kept, too: each line is an
        item.
        """
        encode = self.translator.protection.encode
        limit = self.translator.max_length - 1  # room for END
        keeps = self.translator.protection.rules is not None
        whole: list[tuple[int, Part]] = []
        for line, text in enumerate(self.texts):
            if text.strip():
                own, self.after[line] = split_lines(text) if keeps else ([Part("", text)], "")
                self.lines[line] = len(own)
                whole += [(line, part) for part in own]

        protection = self.translator.protection
        count = protection.counter(limit)
        items = []
        encoded = encode([part.text for _, part in whole])
        for (line, part), tokens in zip(whole, encoded, strict=True):
            parts = self.parts.setdefault(line, [])
            fits = len(tokens) <= limit and not (keeps and protection.protect(part.text).left)
            if fits:
                items.append(Item(line, len(parts), tokens))
                parts.append(part)
                continue
            first, *others = split_text(part.text, count, limit)
            small = [Part(part.before + first.before, first.text), *others]
            again = enumerate(encode([one.text for one in small]), start=len(parts))
            items += [Item(line, place, tokens) for place, tokens in again]
            parts += small
        return items

    def _workers(self, items: Sequence[Item]) -> int:
        """Number of threads that translate batches concurrently; 1 for sequential batches."""
        one = self.translator
        apart = one.engine is not None or one.device.type != "cpu" or one.parameters > _SMALL
        if apart or self.alignments or any(map(seen_from_outside, one.models)):
            return 1
        most = _tokens(items) * self.options.width // (2 * _FEWEST)
        return max(1, min(torch.get_num_threads(), most))

    def _searched(self, batches: list[list[Item]], count: int) -> Iterator[list[Item]]:
        """The batches in order, each after its search."""
        if count == 1:
            for batch in batches:
                self._batch(batch)
                yield batch
            return
        pool = workers(count)
        calls = [submit(pool, self._batch_of_worker, batch) for batch in batches]
        try:
            for batch, call in zip(batches, calls, strict=True):
                call.result()
                yield batch
        finally:  # after an error or Ctrl-C, no worker may continue once models are restored
            for call in calls:
                call.cancel()
            wait(calls)

    def _batch_of_worker(self, batch: list[Item]) -> None:
        with self.translator.inference_context():
            self._batch(batch)

    def _batch(self, batch: list[Item]) -> None:
        sources = [item.tokens for item in batch]
        # Random numbers of a part are derived from the numbers of its text and of the part.
        keys = [((self.start + item.line) << 20) + item.part for item in batch]
        texts = [self.parts[item.line][item.part].text for item in batch]
        found = self.translator.find(
            sources, self.options, keys, scores=self.scores, alignments=self.alignments, texts=texts
        )
        for item, one in zip(batch, found, strict=True):
            self.found[item.line, item.part] = one

    def _assembled(self, line: int) -> Translation:
        text = self.texts[line]
        if line not in self.parts:
            empty = WordAlignment(torch.zeros(0, 0)) if self.alignments else None
            return Translation(text, text, alignment=empty)
        parts = self.parts[line]
        found = [self.found[line, part] for part in range(len(parts))]
        protection, exponent = self.translator.protection, self.options.length_penalty
        threshold = self.translator.link_threshold
        after = self.after[line]
        made = assemble(text, parts, found, protection, exponent, threshold, after)
        return replace(made, parts=1 + len(parts) - self.lines[line])


def _tokens(items: Sequence[Item]) -> int:
    return sum(len(item.tokens) + 1 for item in items)
