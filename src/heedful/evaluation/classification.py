"""Scores of classification and tagging, computed by scikit-learn, and the worst mistakes."""

import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from heedful.basics.errors import UserError
from heedful.evaluation.outcome import ReportTable

OUTSIDE = "O"
"""The tag of words outside of names, as in CoNLL-2003."""
SHOWN_WHOLE = 12
"""With more labels than this, only the largest entries of the confusion matrix are shown."""

SHOWN_CONFUSIONS = 20


@dataclass(frozen=True)
class LabelScore:
    """The scores of one label.

    Attributes:
        label: the name of the label.
        count: number of examples with this label.
        precision: share of the predictions of this label that are correct; 0 if there are none.
        recall: share of the examples of this label that are predicted so; 0 if there are none.
        f1: the harmonic mean of precision and recall.
    """

    label: str
    count: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction; ``line`` counts examples (for tags: words) from 1."""

    line: int
    probability: float | None
    predicted: str
    gold: str
    text: str | None


@dataclass(frozen=True)
class ClassificationReport:
    """The scores of a classifier or tagger.

    Attributes:
        count: number of predictions.
        accuracy: share of correct predictions, from 0 to 1.
        macro_f1: mean F1 of all labels that occur in the gold labels or predictions; for tags,
            without ``O``, which marks words outside of names.
        matthews: Matthews' correlation coefficient, for any number of labels (Gorodkin 2004).
        labels: the labels of ``confusion``: those that occur, known ones in the model's order.
        confusion: gold label (row) × predicted label (column) → count.
        by_label: the scores of each label.
        unseen: labels that the model does not know, with their number of examples; each example
            counts as a mistake.
        worst: wrong predictions, those with the highest probability first.
    """

    count: int
    accuracy: float
    macro_f1: float
    matthews: float
    labels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    by_label: tuple[LabelScore, ...]
    unseen: dict[str, int]
    worst: tuple[Mistake, ...]

    def figures(self) -> dict[str, float]:
        """The three scores by name."""
        return {
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "matthews": self.matthews,
        }

    def as_json(self) -> dict[str, Any]:
        """The report as a value that :mod:`json` can write."""
        return dataclasses.asdict(self)

    def tables(self) -> list[ReportTable]:
        """The report as tables, for a terminal or as plain text."""
        scores = [
            ("accuracy", f"{100 * self.accuracy:.2f} %"),
            ("macro F1", f"{100 * self.macro_f1:.2f} %"),
            ("Matthews", f"{self.matthews:.4f}"),
        ]
        made = [ReportTable(f"{self.count:,} decisions", ("score", "value"), scores)]
        if self.unseen:
            unseen = [(label, str(count)) for label, count in self.unseen.items()]
            title = "labels that training never saw (all mistakes)"
            made.append(ReportTable(title, ("label", "examples"), unseen))
        made += [self._label_table(), self._confusion_table()]
        return [*made, self._mistake_table()] if self.worst else made

    def text(self) -> str:
        """The tables as TAB-separated lines."""
        return "\n\n".join(table.plain() for table in self.tables())

    def _label_table(self) -> ReportTable:
        rows = [
            (
                each.label,
                str(each.count),
                *(f"{100 * value:.1f} %" for value in (each.precision, each.recall, each.f1)),
            )
            for each in self.by_label
        ]
        return ReportTable("labels", ("label", "examples", "precision", "recall", "F1"), rows)

    def _confusion_table(self) -> ReportTable:
        if len(self.labels) <= SHOWN_WHOLE:
            rows = [
                (label, *map(str, row))
                for label, row in zip(self.labels, self.confusion, strict=True)
            ]
            return ReportTable("confusion", ("gold \\ given", *self.labels), rows)
        found = [
            (count, gold, given)
            for gold, row in zip(self.labels, self.confusion, strict=True)
            for given, count in zip(self.labels, row, strict=True)
            if count and gold != given
        ]
        found.sort(key=lambda entry: -entry[0])
        rows = [(gold, given, str(count)) for count, gold, given in found[:SHOWN_CONFUSIONS]]
        title = f"the largest of {len(found):,} confusions"
        return ReportTable(title, ("gold", "given", "times"), rows)

    def _mistake_table(self) -> ReportTable:
        rows = [
            (
                str(each.line),
                "" if each.probability is None else f"{each.probability:.3f}",
                each.predicted,
                each.gold,
                each.text or "",
            )
            for each in self.worst
        ]
        return ReportTable("worst mistakes", ("line", "probability", "given", "gold", "text"), rows)


def score_classification(
    gold: Sequence[str],
    predicted: Sequence[str],
    *,
    labels: Sequence[str],
    probabilities: Sequence[float] | None = None,
    texts: Sequence[str | Sequence[str]] | None = None,
    worst: int = 10,
    unseen: Literal["error", "count"] = "error",
    outside: str | None = None,
) -> ClassificationReport:
    """Score predictions.

    Args:
        gold: the correct labels.
        predicted: the predicted labels, one for each gold label.
        labels: the labels of the model.
        probabilities: of the predicted labels; without them, mistakes are in the order of the
            examples.
        texts: the classified texts, or pairs of texts.
        worst: number of mistakes to keep.
        unseen: what to do with gold labels that the model does not know: ``error``, or count
            them as mistakes, which the report lists.
        outside: a label that is left out of the macro F1 if there are others.

    Raises:
        UserError: the numbers differ, there is nothing to score, or a gold label is unknown.
        ValueError: a predicted label is not in ``labels``.

    Example:
        >>> report = score_classification(list("aabb"), list("aaba"), labels="ab")
        >>> report.accuracy, report.confusion
        (0.75, ((2, 0), (1, 1)))
    """
    # Importing scikit-learn takes most of a second, so other commands must not do it.
    from sklearn import metrics

    new = _check(gold, predicted, labels, unseen)
    for values in (probabilities, texts):
        if values is not None and len(values) != len(gold):
            raise ValueError(f"{len(values)} values for {len(gold)} decisions")
    occurring = {*gold, *predicted}
    names = [label for label in dict.fromkeys(labels) if label in occurring] + list(new)
    parts = metrics.precision_recall_fscore_support(gold, predicted, labels=names, zero_division=0)
    by_label = tuple(
        LabelScore(name, int(count), float(precision), float(recall), float(f1))
        for name, precision, recall, f1, count in zip(names, *parts, strict=True)
    )
    with warnings.catch_warnings():
        # scikit-learn warns about a single label; the matrix then has one cell, which is correct.
        warnings.simplefilter("ignore", UserWarning)
        confusion = metrics.confusion_matrix(gold, predicted, labels=names)
        matthews = float(metrics.matthews_corrcoef(gold, predicted))
    return ClassificationReport(
        count=len(gold),
        accuracy=float(metrics.accuracy_score(gold, predicted)),
        macro_f1=_macro_f1(by_label, outside),
        matthews=matthews,
        labels=tuple(names),
        confusion=tuple(tuple(map(int, row)) for row in confusion),
        by_label=by_label,
        unseen=new,
        worst=_worst(gold, predicted, probabilities, texts, worst),
    )


def score_tagging(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    labels: Sequence[str],
    words: Sequence[Sequence[str]] | None = None,
    probabilities: Sequence[Sequence[float]] | None = None,
    worst: int = 10,
    unseen: Literal["error", "count"] = "error",
) -> ClassificationReport:
    """Score the tags of all words of all sentences, like `score_classification`.

    The macro F1 leaves out the tag ``O``.

    Raises:
        UserError: the numbers of sentences or words differ, or see `score_classification`.
    """
    if len(gold) != len(predicted):
        raise UserError(
            f"{len(gold)} sentences with gold tags, but {len(predicted)} with predicted tags"
        )
    for number, (right, given) in enumerate(zip(gold, predicted, strict=True), start=1):
        if len(right) != len(given):
            raise UserError(
                f"sentence {number}: {len(right)} gold tags, but {len(given)} predicted; each word "
                "has exactly one"
            )
    return score_classification(
        list(chain.from_iterable(gold)),
        list(chain.from_iterable(predicted)),
        labels=labels,
        probabilities=None if probabilities is None else list(chain.from_iterable(probabilities)),
        texts=None if words is None else list(chain.from_iterable(words)),
        worst=worst,
        unseen=unseen,
        outside=OUTSIDE,
    )


def _macro_f1(scores: Sequence[LabelScore], outside: str | None) -> float:
    inside = [score for score in scores if score.label != outside] or scores
    return math.fsum(score.f1 for score in inside) / len(inside)


@dataclass(frozen=True)
class Spread:
    """A figure over several seeds: mean, sample standard deviation (0 for one seed), values."""

    mean: float
    deviation: float
    values: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.deviation:.2g} ({len(self.values)} seeds)"


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation of a figure over seeds.

    Raises:
        ValueError: there are no values.

    Example:
        >>> print(spread([88.0, 89.0, 90.0]))
        89 ± 1 (3 seeds)
    """
    if not values:
        raise ValueError("no values to average")
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Spread(mean, math.sqrt(squares / max(len(values) - 1, 1)), tuple(values))


def _check(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str], unseen: str
) -> dict[str, int]:
    """The unknown gold labels with their counts."""
    if len(gold) != len(predicted):
        raise UserError(
            f"{len(predicted)} predictions, but {len(gold)} gold labels; each text has exactly one"
        )
    if not gold:
        raise UserError("there are no predictions to score; the data are empty")
    known = set(labels)
    if strange := set(predicted) - known:
        raise ValueError(f"labels were given that the model does not have: {sorted(strange)}")
    new = Counter(label for label in gold if label not in known)
    if new and unseen == "error":
        line = next(number for number, label in enumerate(gold, start=1) if label in new)
        raise UserError(
            f"the label '{gold[line - 1]}' (example {line:,}; one of {new.total():,} examples with "
            "new labels) does not occur in training: remove these examples, or add some to the "
            "training data"
        )
    return dict(sorted(new.items()))


def _worst(
    gold: Sequence[str],
    predicted: Sequence[str],
    probabilities: Sequence[float] | None,
    texts: Sequence[str | Sequence[str]] | None,
    most: int,
) -> tuple[Mistake, ...]:
    wrong = [place for place in range(len(gold)) if gold[place] != predicted[place]]
    if probabilities is not None:
        wrong.sort(key=lambda place: -probabilities[place])
    return tuple(
        Mistake(
            place + 1,
            None if probabilities is None else float(probabilities[place]),
            predicted[place],
            gold[place],
            None if texts is None else _joined(texts[place]),
        )
        for place in wrong[:most]
    )


def _joined(text: str | Sequence[str]) -> str:
    return text if isinstance(text, str) else " ‖ ".join(text)
