"""Summarises texts, and shows which words were copied from where.

Shapes: B texts, S source tokens, T target tokens.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.notices import counted_notice, once
from heedful.basics.symbols import BEGIN, END
from heedful.decoding import Decodable, Hypothesis, SearchOptions, search
from heedful.decoding.no_repeats import NoRepeats
from heedful.inference import Axis, Trace
from heedful.inference.batches import padded
from heedful.inference.fusing import searched
from heedful.inference.searcher import ended_by_limit
from heedful.inference.trace import AttentionMap
from heedful.inference.tracing import BEGIN_LABEL, END_LABEL, Decision, Described
from heedful.models import PairModel, Source
from heedful.models.copy_mixture import Copied, CopyingModel
from heedful.tasks.column_predictor import ColumnPredictor
from heedful.tasks.summary.encoding import (
    EncodedText,
    encode_text,
    excess,
    spelled,
    words_of,
    written,
)
from heedful.tasks.summary.examples import ToSummarise
from heedful.tasks.summary.training import readable, source_of

ORIGINS = ("vocabulary", "copied")
"""The labels of the map of where each word comes from."""


class CopiedWord(NamedTuple):
    """A word of a summary, and where it comes from."""

    word: str
    generated: float
    """p, the share of the vocabulary in the mixture, from 0 to 1."""
    position: int
    """The position in the text that the attention reads most, from 1; 0 for its end."""
    source: str
    """The word at this position."""
    weight: float
    """The weight of this position."""


class Summary(NamedTuple):
    """The summary of a text."""

    text: str
    log_probability: float
    """Natural logarithm of its probability."""
    words: Sequence[CopiedWord] = ()
    """Empty for a model that does not copy."""
    unread_words: int = 0
    """How many words at the end of the text were not read (``data.longest_source``)."""
    at_limit: bool = False
    """Whether the summary was ended by its maximum length (``data.longest_summary``)."""

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """The result as a value that :mod:`json` can write, without what is empty, 0 or false."""
        found: dict[str, Any] = {"text": self.text, "log_probability": self.log_probability}
        if self.words:
            found["words"] = [one._asdict() for one in self.words]
        if self.unread_words:
            found["unread_words"] = self.unread_words
        if self.at_limit:
            found["at_limit"] = True
        return found


def find_summaries(
    model: PairModel,
    source: Source,
    options: SearchOptions,
    longest: int,
    keys: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for the texts of a batch, in evaluation mode.

    Args:
        model: summarises.
        source: the texts.
        options: of the search.
        longest: most words of a summary.
        keys: for samples, a number for each text; by default its place.
    """
    decodable: Decodable[Source, Any] = searched(model)
    if size := getattr(options, "block_ngrams", 0):
        decodable = NoRepeats(decodable, size)
    rows = len(source.lengths)
    limits = torch.full((rows,), longest + 1, device=source.tokens.device)
    return search(decodable, source, rows=rows, options=options, max_lengths=limits, keys=keys)


class Summariser(ColumnPredictor[PairModel, ToSummarise, Summary]):
    """Summarises texts with a trained model.

    Attributes:
        options: the settings of the search, initially those of the recipe.
    """

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self.options: SearchOptions = self.recipe.decoding
        self.notify = once()

    def answer_keyed(self, inputs: Sequence[ToSummarise], keys: Sequence[int]) -> list[Summary]:
        """One summary for each of some texts."""
        self._say_cut(inputs)
        source = source_of(self.batch(inputs), self.model, words_of(self.known).size)
        longest = self.known["longest_summary"]
        found = find_summaries(self.model, source, self.options, longest, keys)
        ended = [ended_by_limit(own, longest + 1, self.options) for own in found]
        counted_notice(self.notify, self._ended, sum(ended), len(found))
        best = [hypotheses[0] for hypotheses in found]
        texts = [encode_text(one.source, self.known, one.where) for one in inputs]
        copied = self._copied(source, [one.tokens for one in best])
        summaries = [
            self._summary(hypothesis, text, None if copied is None else _row(copied, row))
            for row, (hypothesis, text) in enumerate(zip(best, texts, strict=True))
        ]
        return [
            one._replace(unread_words=excess(given.source, self.known), at_limit=limit)
            for one, given, limit in zip(summaries, inputs, ended, strict=True)
        ]

    def _say_cut(self, inputs: Sequence[ToSummarise]) -> None:
        longer = sum(excess(one.source, self.known) > 0 for one in inputs)
        if self.known["cuts"]:
            counted_notice(self.notify, self._cut, longer, len(inputs))

    def _cut(self, longer: int, texts: int) -> str:
        longest = self.known["longest_source"]
        return (
            f"texts of more than {longest:,} words (data.longest_source): {longer:,} of "
            f"{texts:,}; the rest of them is not read"
        )

    def _ended(self, ended: int, texts: int) -> str:
        longest = self.known["longest_summary"]
        return (
            f"summaries ended after {longest:,} words (data.longest_summary): {ended:,} of "
            f"{texts:,}"
        )

    def _copied(self, source: Source, outputs: Sequence[Sequence[int]]) -> Copied | None:
        """What each word of the outputs copies; None for a model that does not copy."""
        if not isinstance(self.model, CopyingModel):
            return None
        target = padded([[BEGIN, *one] for one in outputs], self.device)
        return self.model.read(source, target)[1]

    def _summary(self, found: Hypothesis, text: EncodedText, copied: Copied | None) -> Summary:
        words = spelled(found.tokens, text.unknown, self.known)
        if copied is None:
            return Summary(written(words), found.log_probability)
        shares = torch.sigmoid(copied.gate[:, 0]).tolist()
        largest = copied.weights.max(1)
        own = [
            CopiedWord(word, share, place + 1, text.words[place], weight)
            if place < len(text.words)
            else CopiedWord(word, share, 0, END_LABEL, weight)
            for word, share, place, weight in zip(
                words, shares, largest.indices.tolist(), largest.values.tolist(), strict=False
            )
        ]
        return Summary(written(words), found.log_probability, own)

    def trace(self, given: ToSummarise, relevance: bool = True) -> Trace:
        """What the model attends to, and what it copies, while it summarises a text.

        A model that copies has three more maps: ``p_gen``, the shares of the vocabulary and of the
        text in each word; ``copied``, the probability that each position of the text gives to
        copying; ``coverage``, the sum of the earlier weights of each position.

        Args:
            given: the text.
            relevance: whether to add relevance maps.
        """
        self._say_cut([given])
        text, size = encode_text(given.source, self.known), words_of(self.known).size
        source = source_of(self.batch([given]), self.model, size)
        with self.ready():
            [[best, *_]] = find_summaries(
                self.model, source, self.options, self.known["longest_summary"]
            )
        names = spelled(best.tokens, text.unknown, self.known)
        axes = {
            "source": Axis("tokens", [*text.words, END_LABEL]),
            "target": Axis("tokens", [BEGIN_LABEL, *names], steps=True),
        }
        words = {
            "source": [*range(len(text.words)), -1],
            "target": [-1, *range(len(names))],
        }
        target = torch.tensor([[BEGIN, *best.tokens, END]], device=self.device)
        labels = readable(target[:, 1:], self.model, size)

        def decide() -> Decision:
            logits = self.model.teacher_force(source, target[:, :-1]).float()
            own = logits.log_softmax(-1).gather(-1, labels[..., None])
            return Decision([*names, END_LABEL], own[0, :, 0])

        described = Described(written(names), axes, words)
        trace = self.traced(described, decide, relevance=relevance)
        with self.ready():
            copied = self._copied(source, [best.tokens])
        return trace if copied is None else with_copies(trace, _row(copied, 0))


def _row(copied: Copied, row: int) -> Copied:
    return Copied(*(part[row] for part in copied))


def with_copies(trace: Trace, copied: Copied) -> Trace:
    """The trace with the maps of what is copied.

    Args:
        trace: has the axes "source" and "target".
        copied: weights ``[T, S]``, gate ``[T, 1]`` and tokens ``[T, S]``.
    """
    weights, generated = copied.weights.float().cpu(), torch.sigmoid(copied.gate.float().cpu())
    found: dict[str, tuple[str, Tensor]] = {
        "p_gen": ("origin", torch.cat([generated, 1 - generated], -1)),
        "coverage": ("source", weights.cumsum(0) - weights),
        "copied": ("source", (1 - generated) * weights),
    }
    maps = [
        AttentionMap(name, "target", axis, own.unsqueeze(0), "copying")
        for name, (axis, own) in found.items()
    ]
    axes = {**trace.axes, "origin": Axis("labels", list(ORIGINS))}
    return replace(trace, axes=axes, maps=[*trace.maps, *maps])
