"""Evaluation of classifiers."""

from collections.abc import Sequence

from heedful.data.examples import Labelled
from heedful.evaluation.calibration import calibration_details, calibration_table
from heedful.evaluation.classification import score_classification
from heedful.evaluation.outcome import Examples, Figure
from heedful.inference.classifier import Classifier
from heedful.tasks.classification.calibration import calibration_of
from heedful.tasks.texts.score import TextScore
from heedful.tasks.texts.training import read


def score_labels(
    name: str, classifier: Classifier, examples: Sequence[Labelled], worst: int
) -> TextScore:
    """Accuracy, macro F1 and Matthews' correlation of a classifier's labels."""
    found = classifier.classify([read(example) for example in examples])
    labels = [one.label or classifier.labels[0] for one in found]
    report = score_classification(
        [example.label for example in examples],
        labels,
        labels=classifier.labels,
        probabilities=[one.probability for one in found],
        texts=[example.texts for example in examples],
        worst=worst,
        unseen="count",
    )
    gold = [example.label for example in examples]
    now, before = calibration_of(found, gold), None
    if classifier.temperature != 1.0:
        unscaled = classifier.at(1.0).classify([read(example) for example in examples])
        before = calibration_of(unscaled, gold)
    figures = {key: Figure(value) for key, value in report.figures().items()} | now.figures()
    tables = report.tables()
    tables.insert(1, calibration_table(now, before))
    details = report.as_json() | calibration_details(now, before, classifier.temperature)
    right = [[float(one == other), 1.0] for one, other in zip(gold, labels, strict=True)]
    texts = [" ⏎ ".join(text for text in example.texts if text) for example in examples]
    return TextScore(
        name,
        len(examples),
        "texts",
        figures,
        tables,
        details,
        labels,
        Examples(texts, gold, labels, {"accuracy": {"kind": "mean", "values": right}}),
    )
