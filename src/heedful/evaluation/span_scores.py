"""Precision, recall and F1 of spans that tags mark, such as names.

A predicted span is right if the gold tags mark one of the same type with the same words. The scores
are those of CoNLL-2003's scorer and of seqeval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.data.tag_schemes import Scheme, spans
from heedful.evaluation.outcome import ReportTable


@dataclass(frozen=True)
class SpanCounts:
    """The spans of one type, or of all types."""

    right: int = 0
    predicted: int = 0
    gold: int = 0

    @property
    def precision(self) -> float:
        """Share of the predicted spans that are right; 0 if there are none."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the gold spans that are predicted; 0 if there are none."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.right / max(1, self.predicted + self.gold)


@dataclass(frozen=True)
class SpanReport:
    """The scores of spans.

    Attributes:
        by_type: type → counts, for the types that occur in the gold or predicted tags.
        sentences: for each sentence, its right, predicted and gold spans.
        scheme: the scheme in which tags were read; None for the rules of CoNLL's scorer.
    """

    by_type: Mapping[str, SpanCounts]
    sentences: Sequence[tuple[int, int, int]]
    scheme: Scheme | None = None

    @property
    def all_types(self) -> SpanCounts:
        """The spans of all types together: micro-averages."""
        return SpanCounts(*(sum(column) for column in zip(*self.sentences, strict=True)))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the types; 0 if there are none."""
        own = [counts.f1 for counts in self.by_type.values()]
        return math.fsum(own) / max(1, len(own))

    def figures(self) -> dict[str, float]:
        """The micro-averages and the macro F1; names begin with ``strict_`` if read in a scheme."""
        every = self.all_types
        own = {
            "span_f1": every.f1,
            "span_precision": every.precision,
            "span_recall": every.recall,
            "span_macro_f1": self.macro_f1,
        }
        return {f"strict_{name}" if self.scheme else name: value for name, value in own.items()}

    def as_json(self) -> dict[str, Any]:
        """The report as a value that :mod:`json` can write."""
        types = {name: _scores(counts) for name, counts in self.by_type.items()}
        return {**self.figures(), "scheme": self.scheme, "types": types}

    def table(self) -> ReportTable:
        """The scores of each type and of all."""
        mean = ("mean", "", "", "", "", f"{100 * self.macro_f1:.2f} %")
        rows = [_row(name, counts) for name, counts in self.by_type.items()]
        strict = f", strictly in {self.scheme}" if self.scheme else ""
        header = ("type", "spans", "given", "precision", "recall", "F1")
        return ReportTable(f"spans{strict}", header, [*rows, _row("all", self.all_types), mean])


def score_spans(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    scheme: Scheme | None = None,
) -> SpanReport:
    """Score the spans of sentences.

    Args:
        gold: the tags of each sentence.
        predicted: tags of the same words.
        scheme: see :func:`heedful.data.tag_schemes.spans`.

    Raises:
        ValueError: the numbers of sentences differ.

    Example:
        >>> score_spans([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "B-PER"]]).figures()["span_f1"]
        0.5
    """
    by_type: dict[str, list[int]] = {}
    sentences = []
    for tags, others in zip(gold, predicted, strict=True):
        right, given = set(spans(tags, scheme)), set(spans(others, scheme))
        sentences.append((len(right & given), len(given), len(right)))
        for place, found in enumerate((right & given, given, right)):
            for span in found:
                by_type.setdefault(span.type, [0, 0, 0])[place] += 1
    counts = {name: SpanCounts(*by_type[name]) for name in sorted(by_type)}
    return SpanReport(counts, sentences or [(0, 0, 0)], scheme)


def _scores(counts: SpanCounts) -> dict[str, Any]:
    own = {name: getattr(counts, name) for name in ("precision", "recall", "f1")}
    return {**vars(counts), **own}


def _row(name: str, counts: SpanCounts) -> tuple[str, ...]:
    shares = (counts.precision, counts.recall, counts.f1)
    numbers = (f"{counts.gold:,}", f"{counts.predicted:,}")
    return (name, *numbers, *(f"{100 * share:.2f} %" for share in shares))
