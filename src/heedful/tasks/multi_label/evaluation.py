"""Evaluation of sets of labels."""

from collections.abc import Sequence

from heedful.data.examples import MultiLabelled
from heedful.evaluation.label_sets import score_sets
from heedful.evaluation.outcome import Examples, Figure
from heedful.tasks.multi_label.predictor import MultiLabelClassifier
from heedful.tasks.texts.score import TextScore
from heedful.tasks.texts.training import read


def score_label_sets(
    name: str, classifier: MultiLabelClassifier, examples: Sequence[MultiLabelled]
) -> TextScore:
    """Micro and macro F1, subset accuracy and mean average precision."""
    found = classifier.predict([read(example) for example in examples])
    gold = [example.labels for example in examples]
    given = [one.labels for one in found]
    probabilities = [list(one.probabilities.values()) for one in found]
    report = score_sets(gold, given, probabilities, classifier.labels)
    sets = list(zip(map(set, gold), map(set, given), strict=True))
    exact = [[float(right == own), 1.0] for right, own in sets]
    counts = [[len(right & own), len(own), len(right)] for right, own in sets]
    outputs, references = ([", ".join(own) for own in side] for side in (given, gold))
    one_by_one = Examples(
        [" ⏎ ".join(example.texts) for example in examples],
        references,
        outputs,
        {
            "micro_f1": {"kind": "f1", "values": counts},
            "subset_accuracy": {"kind": "mean", "values": exact},
        },
    )
    figures = {key: Figure(value) for key, value in report.figures().items()}
    return TextScore(
        name,
        len(examples),
        "texts",
        figures,
        report.tables(),
        report.as_json(),
        outputs,
        one_by_one,
    )
