"""The translator, which validation, ``translate``, ``evaluate`` and serving use.

Shapes: B batch, S source tokens, T target tokens.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from heedful.basics.errors import UserError
from heedful.data.examples import require_list
from heedful.decoding import SearchOptions
from heedful.inference.alternatives import Alternative, alternatives, continue_from
from heedful.inference.line_windows import windows
from heedful.inference.searcher import Searcher
from heedful.inference.streaming import TextSupplier, translated_stream
from heedful.inference.trace import Trace
from heedful.inference.tracing import require_fit, trace_pair
from heedful.inference.translation import Translation
from heedful.inference.translation_window import Advance, Window


class Translator(Searcher):
    """Translates texts, traces and continues translations; arguments as for ``Searcher``."""

    task = "translation"

    def translate(
        self,
        texts: Iterable[str],
        *,
        options: SearchOptions | None = None,
        alignments: bool = False,
        advance: Advance | None = None,
    ) -> list[Translation]:
        """Translate texts; the results are in the order of the texts.

        Args:
            texts: translated independently; a text that is empty or white space only is returned
                unchanged.
            options: search settings; those of the translator by default.
            alignments: whether to compute word alignments.
            advance: called with progress.

        Raises:
            UserError: ``texts`` is a string, alignments are requested but no model has
                cross-attention, or a text is not valid Unicode.
        """
        require_list(texts, "translate")
        return list(
            self.translate_stream(texts, options=options, alignments=alignments, advance=advance)
        )

    def predict(self, inputs: Iterable[Any]) -> list[Any]:
        """The same as :meth:`translate`; every predictor has this method."""
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
        """The same as `translate`, with only one window of texts in memory at a time."""
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
        counts: Counter[str] | None = None,
        first: int = 0,
    ) -> Iterator[list[Translation]]:
        """The same as `translate`, window by window; texts of a window are batched together.

        Without ``scores``, scores may be NaN if an engine does not compute them. With ``counts``,
        texts that were split or cut off are added there; call :meth:`warn` after the last of
        several calls. ``first`` is the index of the first text, from which its random numbers for
        sampling are derived.
        """
        options = options or self.options
        if self.engine is not None:
            self.engine.check(options)
        if alignments:
            self.require_alignments()
        own: Counter[str] = Counter() if counts is None else counts
        start = first
        for block in blocks:
            window = Window(self, list(block), start, options, scores, alignments, advance)
            translations = window.translate()
            own["split"] += sum(one.parts > 1 for one in translations)
            own["at limit"] += sum(one.at_limit for one in translations)
            start += len(block)
            yield translations
        if counts is None:
            self.warn(own)

    def translate_running(
        self, texts: TextSupplier, *, options: SearchOptions, alignments: bool = False
    ) -> Iterator[list[tuple[int, Translation]]]:
        """Translate texts that enter one search as others leave it; see `translated_stream`.

        Each translation is yielded as soon as its search ends. Not available for sampling, whose
        random numbers depend on a text's index, or with another engine.
        """
        counts: Counter[str] = Counter()
        for made in translated_stream(self, texts, options, alignments=alignments):
            counts["at limit"] += sum(one.at_limit for _, one in made)
            yield made
        self.warn(counts)

    def trace(
        self,
        source_text: str,
        target_text: str | None = None,
        *,
        options: SearchOptions | None = None,
        relevance: bool = False,
    ) -> Trace:
        """The attention weights of the model for ``target_text``, by default its translation.

        In an ensemble, those of the first model. With ``relevance``, the trace also has attention
        rollout and attention × gradient.

        Raises:
            UserError: a text is empty or longer than the model's limit, or there is no model.
        """
        for text, what in ((source_text, "source"), (target_text, "target")):
            if text is not None and not text.strip():
                raise UserError(f"the {what} is empty; give a text to look at")
        if target_text is None:
            (source,), target = self.protection.encode([source_text]), None
        else:
            (source,), (target,) = self.protection.encode_pairs([source_text], [target_text])
        require_fit("source", len(source), self.max_length - 1)
        model, rule = self.model, self.rules[0]
        if target is None:
            with self.ready():
                (found,) = self.find([source], options or self.options, [0])
            target = list(found.hypotheses[0].tokens)
        else:
            require_fit("target", len(target), self.max_length - 1)
        return trace_pair(
            model,
            self.tokenisers,
            (source, target),
            source_text,
            self.ready(),
            self.device,
            alignment=None if rule is None else rule.where,
            relevance=relevance,
        )

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
            text: the text to translate; not empty.
            prefix: the beginning of the translation. If it ends with white space, a new word
                begins after it; otherwise its last word may continue.
            options: search settings without sampling; those of the translator by default.
            alignments: whether to compute word alignments.

        Raises:
            UserError: the text is empty, or it or the prefix is longer than the model's limit.
        """
        return continue_from(
            self, text, prefix, options=options or self.options, alignments=alignments
        )

    def alternatives(self, text: str, prefix: str, count: int = 5) -> list[Alternative]:
        """The most probable words after ``prefix``, each with a translation that continues with it.

        Args:
            text: the text to translate; not empty.
            prefix: the translation before the word; empty for its first word.
            count: maximum number of words, which are different, most probable first.

        Raises:
            UserError: the text is empty, or it or the prefix is longer than the model's limit.
        """
        return alternatives(self, text, prefix, count)

    def warn(self, counts: Counter[str]) -> None:
        """Print notices about texts that were split or cut off."""
        for text in length_notices(counts, self.max_length):
            self.notify(text)


def length_notices(counts: Counter[str], max_length: int) -> Iterator[str]:
    """Notices about texts that were split or cut off; ``max_length`` is the model's limit."""
    if counts["split"]:
        yield (
            f"{_lines(counts['split'])} longer than the model's {max_length:,} tokens: "
            "translated in parts and joined"
        )
    if counts["at limit"]:
        yield (
            f"{_lines(counts['at limit'])} cut off at the maximum output length (the model may "
            "be repeating itself)"
        )


def _lines(count: int) -> str:
    return f"{count:,} text{'s were' if count > 1 else ' was'}"
