"""The base of translators: models and tokenisers for search, tracing and forced prefixes.

Shapes: B batch, S source tokens, T target tokens.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor

from heedful.basics.device import autocast
from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.thread_contention import without_contention
from heedful.data.examples import Pair
from heedful.data.memory import Memory
from heedful.data.protected.known import KnownSpans
from heedful.data.protected.pairs import Rules
from heedful.data.protected.spans import find_spans
from heedful.data.protected.unknown import KnownWords
from heedful.data.tokeniser import Tokenisers
from heedful.decoding import Decodable, Ensemble, Hypothesis, SearchOptions, search
from heedful.decoding.forced_first import ForcedFirst
from heedful.decoding.kept_placeholders import KeptPlaceholders
from heedful.inference.alignment import (
    AlignmentRule,
    default_rule,
    ensemble_weights,
    word_weights,
)
from heedful.inference.assembly import PartResult
from heedful.inference.batches import Item, source_of, target_in_of, token_batches
from heedful.inference.engine import SearchEngine, search_with_engine
from heedful.inference.fusing import searched
from heedful.inference.inference_mode import evaluating, in_precision
from heedful.inference.protection import PLACEHOLDER_TOKENS, Protection
from heedful.models.pairs import PairModel, Source

# An output may be twice as long as its source and this much longer, in tokens.
_LONGER_BY = 20


class Searcher:
    """Models and tokenisers that search for translations.

    Args:
        models: one model, or several with the same vocabulary, which form an ensemble; none is
            possible with an engine, but then traces and forced prefixes are not available.
        tokenisers: of the source and the target.
        device: the device of the models.
        precision: precision of matrix products: float32, bfloat16, float16, or int8, which uses
            int8 copies of the models' current weights.
        batch_tokens: maximum number of padded source tokens times beam in a batch.
        options: default search settings.
        source_language: the source language, if known.
        target_language: the target language, if known.
        rules: how word alignments are read from each model's attention; by default, the models'
            own rules.
        engine: searches instead of the models.
        protect: the rules for protected spans, as in training; None for none.
        notify: called with notices; by default they are printed to standard error.

    Raises:
        UserError: int8 is not available, because a model only aligns or PyTorch lacks the products.

    The models are in evaluation mode during a call; their mode is restored afterwards. Only one
    thread at a time may use them (`heedful.serving` queues requests).
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
        engine: SearchEngine | None = None,
        protect: Rules | None = None,
        notify: Callable[[str], None] = notice,
    ) -> None:
        self.rules = tuple(map(default_rule, models) if rules is None else rules)
        self.parameters = sum(one.numel() for model in models for one in model.parameters())
        self.device = torch.device(device)
        self.models, self._products = in_precision(models, precision, self.device)
        self.tokenisers = tokenisers
        self.protection = Protection(tokenisers, protect)
        self.precision = precision
        self.batch_tokens = batch_tokens
        self.options = options or SearchOptions()
        self.source_language = source_language
        self.target_language = target_language
        self.engine = engine
        self._known_words: KnownWords | None = None
        self.memory: Memory | None = None
        """The translation memory that the server uses; the methods here do not."""
        self.examples: tuple[str, ...] = ()
        """Sources that the page offers as examples."""
        if len(self.rules) != len(self.models or [engine]):
            raise ValueError(f"{len(self.rules)} rules for {len(self.models)} models")
        self.notify = notify
        self._said_left_out = False
        searched = self.models if engine is None else [engine]
        self.max_length = min(model.max_length for model in searched)

    def with_known_spans(self, known: KnownSpans) -> Self:
        """A copy, with the same models, that also protects the given spans of certain texts."""
        own = copy.copy(self)
        own.protection = self.protection.with_known_spans(known)
        return own

    def keeping_unknown(self, memory: Memory) -> Self:
        """A copy, with the same models, that keeps names that no source of a memory has.

        See `heedful.data.protected.unknown.KnownWords`.

        Raises:
            UserError: the model knows no placeholders.
        """
        sources = (entry.source for entry in memory)
        own = copy.copy(self)
        words = KnownWords(sources, self.source_language)
        own.protection = self.protection.with_known_words(words)
        return own

    def unknown_names(self, texts: Sequence[str]) -> KnownSpans:
        """The names in the texts that no source of ``memory`` has, as spans of these texts.

        Raises:
            UserError: the model knows no placeholders, or there is no memory.
        """
        memory, rules = self.memory, self.protection.rules
        if memory is None or rules is None:
            raise UserError(
                "unknown names are kept by models with data.protect and a memory only; leave out "
                "keep_unknown"
            )
        if self._known_words is None:
            sources = (entry.source for entry in memory)
            self._known_words = KnownWords(sources, self.source_language)
        words = self._known_words
        found = {text: words.names(text, find_spans(text, rules.names)) for text in texts}
        spans = {text: [[(one.start, one.end)] for one in own] for text, own in found.items()}
        return KnownSpans(texts, spans)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Evaluation mode, no gradients, and the chosen precision while the block runs.

        The mode applies to the model in all threads, so do not train it at the same time; see
        :func:`heedful.inference.inference_mode.evaluating`.
        """
        with evaluating(*self.models), self.inference_context():
            yield

    @contextmanager
    def inference_context(self) -> Iterator[None]:
        """No gradients and the chosen precision, in this thread, inside `ready`."""
        with torch.inference_mode(), autocast(self.device, self._products):
            yield

    def encoded_batches(
        self, pairs: Sequence[Pair], use: str = "the loss"
    ) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
        """Source and target tokens of given pairs, in batches.

        Pairs longer than the model's limit are left out; one notice names the count and ``use``.
        """
        sources, targets = self.protection.encode_pairs(
            [pair.source for pair in pairs], [pair.target for pair in pairs]
        )
        longest = [max(len(one), len(two)) for one, two in zip(sources, targets, strict=True)]
        fitting = [line for line, length in enumerate(longest) if length < self.max_length]
        if len(fitting) < len(pairs) and not self._said_left_out:
            self._said_left_out = True
            self.notify(
                f"{len(pairs) - len(fitting):,} of {len(pairs):,} pairs are longer than the "
                f"model's {self.max_length:,} tokens: left out of {use}"
            )
        # The longer side determines the size of a batch.
        items = [Item(line, 0, max(sources[line], targets[line], key=len)) for line in fitting]
        for batch in token_batches(items, 1, self.batch_tokens):
            lines = [item.line for item in batch]
            yield [sources[line] for line in lines], [targets[line] for line in lines]

    @property
    def computing(self) -> dict[str, str]:
        """The ``device`` and the ``precision``."""
        if self.engine is not None:
            return {"device": self.engine.device, "precision": self.engine.compute_type}
        return {"device": self.device.type, "precision": self.precision}

    @property
    def model(self) -> PairModel:
        """The model; the first one of an ensemble.

        Raises:
            UserError: there is only an engine.
        """
        self.require_model()
        return self.models[0]

    def require_model(self) -> None:
        """Raise UserError if there is only an engine."""
        if not self.models:
            raise UserError(
                "this is an export for another engine, which can only translate: for traces, "
                "faithfulness and given beginnings use the run that it was made from"
            )

    @property
    def decodable(self) -> Decodable[Source, Any]:
        """The decodable for search: the model, or the ensemble.

        Raises:
            UserError: there is only an engine.
        """
        self.require_model()
        members = [searched(model) for model in self.models]
        found: Decodable[Source, Any] = Ensemble(members) if len(members) > 1 else members[0]
        if self.tokenisers.target.first is not None:
            found = ForcedFirst(found, self.tokenisers.target.first)
        if self.protection.rules is None:
            return found
        return KeptPlaceholders(
            found, PLACEHOLDER_TOKENS, lambda source: source.tokens, self.output_limits
        )

    def token_counter(self, limit: int) -> Callable[[Sequence[str]], list[int]]:
        """A function that counts the tokens of sources, for splitting those of more than a limit.

        See :meth:`heedful.inference.protection.Protection.counter`.
        """
        return self.protection.counter(limit)

    def output_limits(self, source: Source) -> Tensor:
        """The maximum length of each output in tokens, END included: integers ``[B]``."""
        return (2 * source.lengths + _LONGER_BY).clamp(max=self.max_length)

    def search(
        self, sequences: Sequence[Sequence[int]], options: SearchOptions, keys: Sequence[int]
    ) -> tuple[Source, list[list[Hypothesis]], list[bool]]:
        """Search for sequences of source tokens, inside `ready`.

        Returns the batch, the hypotheses of each sequence, and whether its best one was ended by
        the limit. ``keys`` are the sequences' numbers, from which random numbers are derived.
        """
        source = source_of(sequences, self.device)
        limits = self.output_limits(source)
        with without_contention(self.device):
            found = search(
                self.decodable,
                source,
                rows=len(sequences),
                options=options,
                max_lengths=limits,
                keys=keys,
            )
        at_limit = [
            ended_by_limit(one, limit, options)
            for one, limit in zip(found, limits.tolist(), strict=True)
        ]
        return source, found, at_limit

    def find(
        self,
        sequences: Sequence[Sequence[int]],
        options: SearchOptions,
        keys: Sequence[int],
        *,
        scores: bool = True,
        alignments: bool = False,
        texts: Sequence[str] | None = None,
    ) -> list[PartResult]:
        """The outputs for sequences of source tokens, by the engine if there is one.

        As `search`, inside `ready`; with ``alignments``, also weights between words. ``texts`` are
        the sources, which contain the words of placeholders.
        """
        if self.engine is not None:
            self.engine.check(options)
            limits = self.output_limits(source_of(sequences, self.device)).tolist()
            return search_with_engine(
                self.engine,
                self.tokenisers,
                sequences,
                options,
                limits,
                scores=scores,
                alignments=alignments,
            )
        source, found, at_limit = self.search(sequences, options, keys)
        soft: list[Tensor | None] = [None] * len(found)
        if alignments:
            written = [best[0].tokens for best in found]
            soft = list(self.align(source, sequences, written, texts))
        return [PartResult(*each) for each in zip(found, soft, at_limit, strict=True)]

    @property
    def aligns(self) -> bool:
        """Whether a model attends to its source, so that alignments are available."""
        return any(rule is not None for rule in self.rules)

    def require_alignments(self) -> None:
        """Raise UserError unless alignments are available."""
        if not self.aligns:
            raise UserError("this model has no attention to its source, so there are no alignments")

    @property
    def link_threshold(self) -> float | None:
        """The minimum weight of a link; in an ensemble, that of the first model with a rule."""
        return next((rule.threshold for rule in self.rules if rule is not None), None)

    def align(
        self,
        source: Source,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        texts: Sequence[str] | None = None,
        forced: Sequence[str] | None = None,
    ) -> list[Tensor]:
        """Weights ``[target words, source words]`` of each pair of a batch, inside `ready`.

        For an ensemble, the mean over its members.

        Args:
            source: the batch.
            sources: its tokens.
            targets: the tokens of the targets.
            texts: the sources, which contain the words of placeholders.
            forced: the targets, if they were given instead of found by search.
        """
        target_in = target_in_of(targets, self.device)
        weights = ensemble_weights(self.models, self.rules, source, target_in)
        nothing: list[str | None] = [None] * len(sources)
        given = zip(texts or nothing, forced or nothing, sources, targets, strict=True)
        words = self.protection.words
        return [word_weights(one, *words(*each)) for one, each in zip(weights, given, strict=True)]


def ended_by_limit(hypotheses: Sequence[Hypothesis], limit: int, options: SearchOptions) -> bool:
    """Whether the best hypothesis was ended by the maximum length (in tokens, END included)."""
    free = options.forced_length is None
    return free and len(hypotheses[0].token_log_probabilities) == limit
