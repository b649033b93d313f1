"""The one way from text to text: validation, ``translate``, ``evaluate`` and serving all take it.

Shapes: B batch, S source tokens, T target tokens.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from heedful.basics.device import autocast
from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import Pair
from heedful.data.tokeniser import Tokenisers
from heedful.decoding import Decodable, Ensemble, Hypothesis, SearchOptions, search
from heedful.inference.alignment import (
    AlignmentRule,
    token_weights,
    usual_rule,
    word_weights,
)
from heedful.inference.assembling import Found, assemble
from heedful.inference.batches import Item, source_of, target_in_of, token_batches
from heedful.inference.continuing import Alternative, alternatives, continue_from
from heedful.inference.splitting import Part, split_text
from heedful.inference.trace import Trace
from heedful.inference.tracing import make_trace
from heedful.inference.translation import Translation, WordAlignment
from heedful.inference.windows import windows
from heedful.models.pairs import PairModel, Source

# An output may be twice as long as its source and this much longer, in tokens.
_LONGER_BY = 20

Advance = Callable[[int], None]
"""Called with the number of texts that were finished since the last call."""


class Translator:
    """Models and tokenisers, ready to translate.

    Args:
        models: one, or several with the same vocabulary, which then form an ensemble.
        tokenisers: of the source and the target.
        device: where the models are.
        precision: of matrix products: float32, bfloat16 or float16.
        batch_tokens: padded source tokens times beam that go through the model at once.
        options: how to search where a call does not say it.
        source_language: what is translated from, where it is known.
        target_language: what is translated into, where it is known.
        rules: how each model's attention is read as an alignment; the models' own unless given.
        say: takes notices (of texts that were split, or ended by the limit): standard error's.

    The models are in evaluation mode while they translate and as they were before, afterwards. One
    thread at a time may use them (`heedful.serving` has a queue for many).
    """

    def __init__(
        self,
        models: Sequence[PairModel],
        tokenisers: Tokenisers,
        *,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
        options: SearchOptions | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        rules: Sequence[AlignmentRule | None] | None = None,
        say: Callable[[str], None] = notice,
    ) -> None:
        self.models = tuple(models)
        self.tokenisers = tokenisers
        self.device = torch.device(device)
        self.precision = precision
        self.batch_tokens = batch_tokens
        self.options = options or SearchOptions()
        self.source_language = source_language
        self.target_language = target_language
        self.rules = tuple(map(usual_rule, self.models) if rules is None else rules)
        if len(self.rules) != len(self.models):
            raise ValueError(f"{len(self.rules)} rules for {len(self.models)} models")
        self.say = say
        self._said_left_out = False
        self.max_length = min(model.max_length for model in self.models)
        self.decodable: Decodable[Source, Any] = (
            self.models[0] if len(self.models) == 1 else Ensemble(self.models)
        )

    def translate(
        self,
        texts: Iterable[str],
        *,
        options: SearchOptions | None = None,
        alignments: bool = False,
        advance: Advance | None = None,
    ) -> list[Translation]:
        """Translate texts; the results are in their order.

        Args:
            texts: one by one translated for itself; an empty one, or one of white space only,
                stays as it is.
            options: how to search; the translator's own unless given.
            alignments: whether to find which source words each target word came from.
            advance: told about progress.

        Raises:
            UserError: alignments are asked for and no model has cross-attention, or a text is not
                valid Unicode.
        """
        return list(
            self.translate_stream(texts, options=options, alignments=alignments, advance=advance)
        )

    def translate_stream(
        self,
        texts: Iterable[str],
        *,
        options: SearchOptions | None = None,
        alignments: bool = False,
        advance: Advance | None = None,
    ) -> Iterator[Translation]:
        """As `translate`, but holding no more than a window of texts at a time."""
        for window in self.translate_windows(
            windows([text] for text in texts),
            options=options,
            alignments=alignments,
            advance=advance,
        ):
            yield from window

    def translate_windows(
        self,
        blocks: Iterable[Sequence[str]],
        *,
        options: SearchOptions | None = None,
        alignments: bool = False,
        advance: Advance | None = None,
    ) -> Iterator[list[Translation]]:
        """As `translate`, window by window: the texts of one are sorted and batched together."""
        options = options or self.options
        if alignments:
            self.require_alignments()
        counts: Counter[str] = Counter()
        start = 0
        for block in blocks:
            window = _Window(self, list(block), start, options, alignments, advance)
            translations = window.translate()
            counts["split"] += sum(one.parts > 1 for one in translations)
            counts["at limit"] += sum(one.at_limit for one in translations)
            start += len(block)
            yield translations
        self._say(counts)

    def trace(
        self,
        source_text: str,
        target_text: str | None = None,
        *,
        options: SearchOptions | None = None,
        relevance: bool = False,
    ) -> Trace:
        """What the model attends to while it writes ``target_text``, or its own translation.

        Of an ensemble the first model is watched. With ``relevance``, attention rollout and
        attention times gradient are further maps.

        Raises:
            UserError: a text is empty or longer than the model's limit.
        """
        return make_trace(self, source_text, target_text, options=options, relevance=relevance)

    def continue_from(
        self,
        text: str,
        prefix: str,
        *,
        options: SearchOptions | None = None,
        alignments: bool = False,
    ) -> Translation:
        """The best translation of ``text`` that begins with ``prefix``.

        Args:
            text: what is translated; not empty.
            prefix: how the translation begins. After white space at its end a new word begins;
                without it the last word may go on.
            options: how to search, not by sampling; the translator's own unless given.
            alignments: whether to find which source words each target word came from.

        Raises:
            UserError: the text is empty, or it or the prefix is longer than the model's limit.
        """
        return continue_from(
            self, text, prefix, options=options or self.options, alignments=alignments
        )

    def alternatives(self, text: str, prefix: str, count: int = 5) -> list[Alternative]:
        """The likeliest words after ``prefix``, each with the translation that goes on with it.

        Args:
            text: what is translated; not empty.
            prefix: the translation before the word; empty for its first word.
            count: at most so many, the likeliest first; all different.

        Raises:
            UserError: the text is empty, or it or the prefix is longer than the model's limit.
        """
        return alternatives(self, text, prefix, count)

    def _say(self, counts: Counter[str]) -> None:
        if counts["split"]:
            self.say(
                f"{_lines(counts['split'])} longer than the model's {self.max_length:,} tokens: "
                "translated in parts and joined"
            )
        if counts["at limit"]:
            self.say(
                f"{_lines(counts['at limit'])} not finished when the longest output was reached "
                "(the model may be repeating itself): ended there"
            )

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Evaluation mode, no gradients, the precision asked for; afterwards all is as before."""
        training = [part for model in self.models for part in model.modules() if part.training]
        for model in self.models:
            model.eval()
        try:
            with torch.inference_mode(), autocast(self.device, self.precision):
                yield
        finally:
            for part in training:
                part.training = True

    def encoded_batches(
        self, pairs: Sequence[Pair], use: str = "the loss"
    ) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
        """Source and target tokens of given pairs, in batches, for what is taken over all of them.

        Pairs longer than the model's limit are left out; that is said once, with the ``use``.
        """
        sources = self.tokenisers.source.encode_batch([pair.source for pair in pairs])
        targets = self.tokenisers.target.encode_batch([pair.target for pair in pairs])
        longest = [max(len(one), len(two)) for one, two in zip(sources, targets, strict=True)]
        fitting = [line for line, length in enumerate(longest) if length < self.max_length]
        if len(fitting) < len(pairs) and not self._said_left_out:
            self._said_left_out = True
            self.say(
                f"{len(pairs) - len(fitting):,} of {len(pairs):,} pairs are longer than the "
                f"model's {self.max_length:,} tokens: left out of {use}"
            )
        # A batch is as long as its longest side, so that is what batches are made by.
        items = [Item(line, 0, max(sources[line], targets[line], key=len)) for line in fitting]
        for batch in token_batches(items, 1, self.batch_tokens):
            lines = [item.line for item in batch]
            yield [sources[line] for line in lines], [targets[line] for line in lines]

    def output_limits(self, source: Source) -> Tensor:
        """The longest output of each source in tokens, END included: integers ``[B]``."""
        return (2 * source.lengths + _LONGER_BY).clamp(max=self.max_length)

    def search(
        self, sequences: Sequence[Sequence[int]], options: SearchOptions, keys: Sequence[int]
    ) -> tuple[Source, list[list[Hypothesis]], list[bool]]:
        """Search for sequences of source tokens, inside `ready`.

        Returns the batch, each sequence's hypotheses, and whether its best one was ended by the
        limit. ``keys`` tell the sequences' samples apart.
        """
        source = source_of(sequences, self.device)
        limits = self.output_limits(source)
        found = search(
            self.decodable,
            source,
            rows=len(sequences),
            options=options,
            max_lengths=limits,
            keys=keys,
        )
        at_limit = [
            options.forced_length is None and len(best[0].token_log_probabilities) == limit
            for best, limit in zip(found, limits.tolist(), strict=True)
        ]
        return source, found, at_limit

    @property
    def aligns(self) -> bool:
        """Whether a model attends to its source, so that there are alignments."""
        return any(rule is not None for rule in self.rules)

    def require_alignments(self) -> None:
        """Raise UserError unless there are alignments."""
        if not self.aligns:
            raise UserError("this model has no attention to its source, so there are no alignments")

    @property
    def link_threshold(self) -> float | None:
        """What weights must reach to make links; an ensemble's is that of its first aligner."""
        return next((rule.threshold for rule in self.rules if rule is not None), None)

    def align(
        self,
        source: Source,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
    ) -> list[Tensor]:
        """Weights ``[target words, source words]`` of each pair of a batch, inside `ready`.

        An ensemble's are the mean of its members'.
        """
        target_in = target_in_of(targets, self.device)
        members = [
            token_weights(model, rule.where, source, target_in)  # [B, T, S]
            for model, rule in zip(self.models, self.rules, strict=True)
            if rule is not None
        ]
        mean = torch.stack(members).mean(0)
        words_of = self.tokenisers
        return [
            word_weights(
                weights, words_of.source.word_indices(own), words_of.target.word_indices(written)
            )
            for weights, own, written in zip(mean, sources, targets, strict=True)
        ]


def _lines(count: int) -> str:
    return f"{count:,} text{'s were' if count > 1 else ' was'}"


class _Window:
    """Texts that are sorted and batched together."""

    def __init__(
        self,
        translator: Translator,
        texts: list[str],
        start: int,
        options: SearchOptions,
        alignments: bool,
        advance: Advance | None,
    ) -> None:
        self.translator, self.texts, self.start = translator, texts, start
        self.options, self.alignments = options, alignments
        self.advance = advance or (lambda count: None)
        self.parts: dict[int, list[Part]] = {}
        self.found: dict[tuple[int, int], Found] = {}

    def translate(self) -> list[Translation]:
        """The translations in the texts' order."""
        items = self._items()
        missing = Counter(item.line for item in items)
        self.advance(len(self.texts) - len(missing))
        width, size = self.options.width, self.translator.batch_tokens
        with self.translator.ready():
            for batch in token_batches(items, width, size):
                self._batch(batch)
                missing.subtract(item.line for item in batch)
                self.advance(sum(not missing[line] for line in {item.line for item in batch}))
        return [self._assembled(line) for line in range(len(self.texts))]

    def _items(self) -> list[Item]:
        """What has to go through the model: each text with something in it, split if too long."""
        tokeniser = self.translator.tokenisers.source
        limit = self.translator.max_length - 1  # END takes one
        lines = [line for line, text in enumerate(self.texts) if text.strip()]
        encoded = tokeniser.encode_batch([self.texts[line] for line in lines])

        def count(texts: Sequence[str]) -> list[int]:
            return [len(tokens) for tokens in tokeniser.encode_batch(list(texts))]

        items = []
        for line, tokens in zip(lines, encoded, strict=True):
            if len(tokens) <= limit:
                self.parts[line] = [Part("", self.texts[line])]
                items.append(Item(line, 0, tokens))
                continue
            self.parts[line] = split_text(self.texts[line], count, limit)
            again = tokeniser.encode_batch([part.text for part in self.parts[line]])
            items += [Item(line, part, tokens) for part, tokens in enumerate(again)]
        return items

    def _batch(self, batch: list[Item]) -> None:
        sources = [item.tokens for item in batch]
        # A text's number and a part's make every part's random numbers its own.
        keys = [((self.start + item.line) << 20) + item.part for item in batch]
        source, hypotheses, at_limit = self.translator.search(sources, self.options, keys)
        soft: list[Tensor | None] = [None] * len(batch)
        if self.alignments:
            targets = [best[0].tokens for best in hypotheses]
            soft = list(self.translator.align(source, sources, targets))
        for item, found, own, ended in zip(batch, hypotheses, soft, at_limit, strict=True):
            self.found[item.line, item.part] = Found(found, own, ended)

    def _assembled(self, line: int) -> Translation:
        text = self.texts[line]
        if line not in self.parts:
            empty = WordAlignment(torch.zeros(0, 0)) if self.alignments else None
            return Translation(text, text, alignment=empty)
        parts = self.parts[line]
        found = [self.found[line, part] for part in range(len(parts))]
        tokeniser, exponent = self.translator.tokenisers.target, self.options.length_penalty
        threshold = self.translator.link_threshold
        return assemble(text, parts, found, tokeniser, exponent, threshold)
