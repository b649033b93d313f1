"""Bags of words with scikit-learn's regressions: the baseline of ``benchmarks/glue_table.py``.

The features of a text are the TF–IDF weights of its words and pairs of words. A pair of texts has
those of both, and those of the words that both have.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score, matthews_corrcoef

from heedful.data.examples import Example, Labelled, Rated
from heedful.evaluation.correlation import correlations

STRENGTHS = (0.1, 1.0, 10.0)
"""C of the logistic regression; 1 / α of the ridge regression."""


class WordBags:
    """A regression on bags of words.

    Args:
        rows: training rows, each with one text or two.
        targets: the label or the number of each row.
        strength: C, or 1 / α.
        numeric: whether the targets are numbers.
    """

    def __init__(
        self,
        rows: Sequence[tuple[str, ...]],
        targets: Sequence[Any],
        strength: float,
        *,
        numeric: bool,
    ) -> None:
        self.numeric = numeric
        self.vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        self.vectorizer.fit([text for texts in rows for text in texts])
        self.model: Any = Ridge(alpha=1 / strength)
        if not numeric:
            self.model = LogisticRegression(C=strength, max_iter=1000)
        self.model.fit(self.features(rows), list(targets))

    def features(self, rows: Sequence[tuple[str, ...]]) -> csr_matrix:
        """The features ``[N, F]`` of rows."""
        sides = [self.vectorizer.transform(texts) for texts in zip(*rows, strict=True)]
        if len(sides) == 2:
            sides.append(sides[0].minimum(sides[1]))
        return csr_matrix(hstack(sides))

    def outputs(self, rows: Sequence[tuple[str, ...]]) -> list[Mapping[str, float] | float]:
        """For each row, the probabilities of the labels, or a number."""
        features = self.features(rows)
        if self.numeric:
            return [float(value) for value in self.model.predict(features)]
        found = self.model.predict_proba(features)
        names = [str(name) for name in self.model.classes_]
        return [dict(zip(names, map(float, one), strict=True)) for one in found]


def fit_bags(examples: Sequence[Example], strength: float, numeric: bool) -> WordBags:
    """A regression on training examples."""
    return WordBags(
        [tuple(one.texts) for one in examples],
        [target_of(one) for one in examples],
        strength,
        numeric=numeric,
    )


def target_of(example: Example) -> Any:
    """The label, or the number, of an example."""
    if isinstance(example, Rated):
        return example.value
    assert isinstance(example, Labelled)
    return example.label


def validation_figure(model: WordBags, held: Sequence[Example], by: str) -> float:
    """The figure that recipes choose checkpoints by, on held-out rows."""
    gold = [target_of(one) for one in held]
    found = model.outputs([tuple(one.texts) for one in held])
    if model.numeric:
        return correlations(gold, [float(one) for one in found if isinstance(one, float)])[by]
    given = [max(one, key=lambda name: one[name]) for one in found if isinstance(one, Mapping)]
    if by == "matthews":
        return float(matthews_corrcoef(gold, given))
    if by == "macro_f1":
        return float(f1_score(gold, given, average="macro", zero_division=0))
    return float(np.mean([one == other for one, other in zip(gold, given, strict=True)]))
