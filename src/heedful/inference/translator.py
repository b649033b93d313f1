"""The one way from text to text: validation, ``translate``, ``evaluate`` and serving all take it.

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
    """Translates texts, traces and continues translations; made as a ``Searcher`` is."""

    task = "translation"

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
                f"{_lines(counts['at limit'])} cut off at the maximum output length (the model may "
                "be repeating itself)"
            )


def _lines(count: int) -> str:
    return f"{count:,} text{'s were' if count > 1 else ' was'}"
