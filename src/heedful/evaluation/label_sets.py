"""Scores of sets of labels, computed by scikit-learn.

Shapes: N texts, C labels.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.evaluation.classification import LabelScore
from heedful.evaluation.outcome import ReportTable


@dataclass(frozen=True)
class LabelSetReport:
    """The scores of sets of labels.

    Attributes:
        count: number of texts.
        micro_f1: F1 of all decisions for a label together.
        macro_f1: mean F1 of the labels that occur in the gold sets or predictions.
        subset_accuracy: share of texts whose set is exactly right.
        average_precision: mean over the labels that occur in gold sets of the average precision of
            their probabilities; 0 if none occurs.
        by_label: the scores of each label.
        unseen: gold labels that the model does not know, with their number; each counts as missed.
    """

    count: int
    micro_f1: float
    macro_f1: float
    subset_accuracy: float
    average_precision: float
    by_label: tuple[LabelScore, ...]
    unseen: dict[str, int]

    def figures(self) -> dict[str, float]:
        """The scores of all labels by name."""
        names = ("micro_f1", "macro_f1", "subset_accuracy", "average_precision")
        return {name: getattr(self, name) for name in names}

    def as_json(self) -> dict[str, Any]:
        """The report as a value that :mod:`json` can write."""
        own = {"count": self.count, "unseen": self.unseen, **self.figures()}
        return {**own, "by_label": [vars(one) for one in self.by_label]}

    def tables(self) -> list[ReportTable]:
        """The report as tables."""
        rows = [(name.replace("_", " "), f"{100 * v:.2f} %") for name, v in self.figures().items()]
        labels = [
            (
                one.label,
                f"{one.count:,}",
                *(f"{100 * value:.1f} %" for value in (one.precision, one.recall, one.f1)),
            )
            for one in self.by_label
        ]
        made = [ReportTable(f"{self.count:,} texts", ("score", "value"), rows)]
        if self.unseen:
            unseen = [(label, f"{count:,}") for label, count in self.unseen.items()]
            title = "labels that training never saw (all missed)"
            made.append(ReportTable(title, ("label", "texts"), unseen))
        header = ("label", "texts", "precision", "recall", "F1")
        return [*made, ReportTable("labels", header, labels)]


def best_thresholds(
    gold: Sequence[Sequence[str]], probabilities: Sequence[Sequence[float]], labels: Sequence[str]
) -> list[float]:
    """For each label, the threshold of its probability with the highest F1 on these texts.

    A threshold is in the middle between two neighbouring probabilities, and of thresholds with the
    same F1 the one nearest to 0.5 is chosen. It is 0.5 for a label that no text has.

    Args:
        gold: the right labels of each text.
        probabilities: of all labels ``[N, C]``.
        labels: the labels of the model ``[C]``.

    Example:
        >>> best_thresholds([["a"], ["a"], []], [[0.75], [0.25], [0.125]], ["a"])
        [0.1875]
    """
    scores = np.array(probabilities, dtype=float).reshape(len(gold), len(labels))
    right = _table(gold, labels).astype(bool)
    return [_best_threshold(right[:, one], scores[:, one]) for one in range(len(labels))]


def _best_threshold(right: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """The threshold of one label, from its gold decisions and probabilities ``[N]``."""
    if not right.any():
        return 0.5
    values, places = np.unique(scores, return_inverse=True)
    # Of each value, the texts with at least this probability: all of them, and the right ones.
    given, true = (
        np.bincount(places, weights, len(values))[::-1].cumsum()[::-1] for weights in (None, right)
    )
    f1 = 2 * true / (given + right.sum())
    middles = (values + np.concatenate([[0.0], values[:-1]])) / 2
    best = np.flatnonzero(f1 == f1.max())
    return float(middles[best[np.abs(middles[best] - 0.5).argmin()]])


def score_sets(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    probabilities: Sequence[Sequence[float]],
    labels: Sequence[str],
) -> LabelSetReport:
    """Score sets of labels.

    Args:
        gold: the right labels of each text.
        predicted: the predicted labels of each text.
        probabilities: of all labels of the model ``[N, C]``.
        labels: the labels of the model ``[C]``.

    Raises:
        ValueError: the numbers of texts differ.
    """
    from sklearn import metrics

    new = Counter(label for own in gold for label in own if label not in set(labels))
    names = [*labels, *sorted(new)]
    right, given = (_table(sets, names) for sets in (gold, predicted))
    scores = np.array(probabilities, dtype=float).reshape(len(gold), len(labels))
    parts = metrics.precision_recall_fscore_support(right, given, average=None, zero_division=0)
    by_label = tuple(
        LabelScore(name, int(count), float(precision), float(recall), float(f1))
        for name, precision, recall, f1, count in zip(names, *parts, strict=True)
    )
    occurs: list[bool] = ((right + given).sum(0) > 0).tolist()
    occurring = [own for own, one in zip(by_label, occurs, strict=True) if one]
    known = [place for place in range(len(labels)) if right[:, place].any()]
    precisions = [metrics.average_precision_score(right[:, one], scores[:, one]) for one in known]
    # A label that no probability is known for is not found.
    precisions += [0.0] * len(new)
    return LabelSetReport(
        len(gold),
        float(metrics.f1_score(right, given, average="micro", zero_division=0)),
        sum(own.f1 for own in occurring) / max(1, len(occurring)),
        float(metrics.accuracy_score(right, given)),
        float(sum(precisions) / max(1, len(precisions))),
        by_label,
        dict(sorted(new.items())),
    )


def _table(sets: Sequence[Sequence[str]], names: Sequence[str]) -> NDArray[np.int64]:
    """1 for each label that a text has ``[N, C]``."""
    table = [[name in own for name in names] for own in sets]
    return np.array(table, dtype=np.int64).reshape(len(sets), len(names))
