"""The one way from text to text: validation, ``translate``, ``evaluate`` and serving all take it.

Shapes: B batch, S source tokens, T target tokens.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from heedful.basics.crowding import uncrowded
from heedful.basics.device import autocast
from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.examples import Pair, require_list
from heedful.data.tokeniser import Tokenisers
from heedful.decoding import Decodable, Ensemble, Hypothesis, SearchOptions, search
from heedful.inference.alignment import (
    AlignmentRule,
    ensemble_weights,
    usual_rule,
    word_weights,
)
from heedful.inference.assembling import Found
from heedful.inference.batches import Item, source_of, target_in_of, token_batches
from heedful.inference.continuing import Alternative, alternatives, continue_from
from heedful.inference.engine import SearchEngine, found_by
from heedful.inference.readiness import in_precision
from heedful.inference.streaming import TextSupplier, ended_by_limit, translated_stream
from heedful.inference.trace import Trace
from heedful.inference.tracing import make_trace
from heedful.inference.translation import Translation
from heedful.inference.windowed import Advance, Window
from heedful.inference.windows import windows
from heedful.models.pairs import PairModel, Source

# An output may be twice as long as its source and this much longer, in tokens.
_LONGER_BY = 20


class Translator:
    """Models and tokenisers, ready to translate.

    Args:
        models: one, or several with the same vocabulary, which then form an ensemble; with an
            engine there may be none, but then nothing is traced and no beginning is given.
        tokenisers: of the source and the target.
        device: where the models are.
        precision: of matrix products: float32, bfloat16, float16, or int8, for which the models
            are replaced by int8 copies, made of their weights as they are now.
        batch_tokens: padded source tokens times beam that go through the model at once.
        options: how to search where a call does not say it.
        source_language: what is translated from, where it is known.
        target_language: what is translated into, where it is known.
        rules: how each model's attention is read as an alignment; the models' own unless given.
        engine: searches in place of the models.
        say: takes notices (of texts that were split, or ended by the limit): standard error's.

    Raises:
        UserError: int8 is asked for and a model only aligns, or the processor has no such products.

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
        engine: SearchEngine | None = None,
        say: Callable[[str], None] = notice,
    ) -> None:
        self.rules = tuple(map(usual_rule, models) if rules is None else rules)
        self.parameters = sum(one.numel() for model in models for one in model.parameters())
        self.device = torch.device(device)
        self.models, self._products = in_precision(models, precision, self.device)
        self.tokenisers = tokenisers
        self.precision = precision
        self.batch_tokens = batch_tokens
        self.options = options or SearchOptions()
        self.source_language = source_language
        self.target_language = target_language
        self.engine = engine
        if len(self.rules) != len(self.models or [engine]):
            raise ValueError(f"{len(self.rules)} rules for {len(self.models)} models")
        self.say = say
        self._said_left_out = False
        searched = self.models if engine is None else [engine]
        self.max_length = min(model.max_length for model in searched)

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
            UserError: ``texts`` is a string, alignments are asked for and no model has
                cross-attention, or a text is not valid Unicode.
        """
        require_list(texts, "translate")
        return list(
            self.translate_stream(texts, options=options, alignments=alignments, advance=advance)
        )

    def predict(self, inputs: Iterable[Any]) -> list[Any]:
        """As :meth:`translate`: what every predictor has."""
        return self.translate(inputs)

    def translate_stream(
        self,
        texts: Iterable[str],
        *,
        options: SearchOptions | None = None,
        scores: bool = True,
        alignments: bool = False,
        advance: Advance | None = None,
    ) -> Iterator[Translation]:
        """As `translate`, but holding no more than a window of texts at a time."""
        require_list(texts, "translate_stream")
        found = self.translate_windows(
            windows([text] for text in texts),
            options=options,
            scores=scores,
            alignments=alignments,
            advance=advance,
        )
        return chain.from_iterable(found)

    def translate_windows(
        self,
        blocks: Iterable[Sequence[str]],
        *,
        options: SearchOptions | None = None,
        scores: bool = True,
        alignments: bool = False,
        advance: Advance | None = None,
    ) -> Iterator[list[Translation]]:
        """As `translate`, window by window: the texts of one are sorted and batched together.

        Without ``scores`` these may be NaN, where an engine saves time by leaving them out.
        """
        options = options or self.options
        if self.engine is not None:
            self.engine.check(options)
        if alignments:
            self.require_alignments()
        counts: Counter[str] = Counter()
        start = 0
        for block in blocks:
            window = Window(self, list(block), start, options, scores, alignments, advance)
            translations = window.translate()
            counts["split"] += sum(one.parts > 1 for one in translations)
            counts["at limit"] += sum(one.at_limit for one in translations)
            start += len(block)
            yield translations
        self._say(counts)

    def translate_running(
        self, texts: TextSupplier, *, options: SearchOptions, alignments: bool = False
    ) -> Iterator[list[tuple[int, Translation]]]:
        """Translate texts that enter one search as others leave it; see `translated_stream`.

        Each text is found as soon as its search ends; not for sampling, whose random numbers are
        made of a text's place, nor by another engine.
        """
        counts: Counter[str] = Counter()
        for made in translated_stream(self, texts, options, alignments=alignments):
            counts["at limit"] += sum(one.at_limit for _, one in made)
            yield made
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
            UserError: a text is empty or longer than the model's limit, or there is no model.
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
            with self.computing_here():
                yield
        finally:
            for part in training:
                part.training = True

    @contextmanager
    def computing_here(self) -> Iterator[None]:
        """No gradients and the precision asked for, in this thread, inside `ready`."""
        with torch.inference_mode(), autocast(self.device, self._products):
            yield

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

    @property
    def computing(self) -> dict[str, str]:
        """How outputs are computed: the ``device`` and the ``precision``."""
        if self.engine is not None:
            return {"device": self.engine.device, "precision": self.engine.compute_type}
        return {"device": self.device.type, "precision": self.precision}

    @property
    def model(self) -> PairModel:
        """The model, of an ensemble the first.

        Raises:
            UserError: there is none, but an engine alone.
        """
        self.require_model()
        return self.models[0]

    def require_model(self) -> None:
        """Raise UserError where there is an engine alone."""
        if not self.models:
            raise UserError(
                "this is an export for another engine, which translates and no more: traces, "
                "faithfulness and given beginnings are for the run that it was made from"
            )

    @property
    def decodable(self) -> Decodable[Source, Any]:
        """What search goes through: the model, or the ensemble of all.

        Raises:
            UserError: there is none, but an engine alone.
        """
        return Ensemble(self.models) if len(self.models) > 1 else self.model

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
        with uncrowded(self.device):
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
    ) -> list[Found]:
        """The outputs for sequences of source tokens, by the engine if there is one.

        As `search`, inside `ready`, and with weights between words where alignments are wanted.
        """
        if self.engine is not None:
            self.engine.check(options)
            limits = self.output_limits(source_of(sequences, self.device)).tolist()
            return found_by(
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
            soft = list(self.align(source, sequences, [best[0].tokens for best in found]))
        return [Found(*each) for each in zip(found, soft, at_limit, strict=True)]

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
        weights = ensemble_weights(self.models, self.rules, source, target_in)
        words_of = self.tokenisers
        return [
            word_weights(
                one, words_of.source.word_indices(own), words_of.target.word_indices(written)
            )
            for one, own, written in zip(weights, sources, targets, strict=True)
        ]


def _lines(count: int) -> str:
    return f"{count:,} text{'s were' if count > 1 else ' was'}"
