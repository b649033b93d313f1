"""Evaluation of predicted numbers."""

from collections.abc import Sequence
from typing import Any

from heedful.data.examples import Rated
from heedful.evaluation.correlation import correlations
from heedful.evaluation.outcome import Examples, Figure, ReportTable
from heedful.tasks.regression.predictor import Regressor
from heedful.tasks.texts.score import TextScore
from heedful.tasks.texts.training import read


def score_numbers(name: str, regressor: Regressor, examples: Sequence[Rated]) -> TextScore:
    """Pearson's and Spearman's correlation and the mean squared error.

    The number of an empty text is the mean of the training numbers.
    """
    found = regressor.predict([read(example) for example in examples])
    values = [regressor.mean if one.value is None else one.value for one in found]
    gold = [example.value for example in examples]
    squares = [[(one - other) ** 2, 1.0] for one, other in zip(values, gold, strict=True)]
    error = sum(square for square, _ in squares) / len(squares)
    own = {**correlations(gold, values), "mean_squared_error": error}
    figures = {key: Figure(value, rises=key != "mean_squared_error") for key, value in own.items()}
    rows = [(key.replace("_", " "), f"{value:.4f}") for key, value in own.items()]
    texts = [" ⏎ ".join(example.texts) for example in examples]
    outputs, references = ([repr(float(one)) for one in side] for side in (values, gold))
    measures: dict[str, Any] = {
        "pearson": {"kind": "pearson"},
        "mean_squared_error": {"kind": "mean", "values": squares, "rises": False},
    }
    return TextScore(
        name,
        len(examples),
        "texts",
        figures,
        [ReportTable(f"{len(examples):,} numbers", ("score", "value"), rows)],
        own,
        outputs,
        Examples(texts, references, outputs, measures),
    )
