"""Evaluation of taggers."""

import operator
from collections.abc import Sequence

from heedful.data.examples import Tagged
from heedful.evaluation.classification import score_tagging
from heedful.evaluation.outcome import Examples, Figure
from heedful.inference.tagger import Tagger
from heedful.tasks.texts.score import TextScore


def score_tags(name: str, tagger: Tagger, examples: Sequence[Tagged], worst: int) -> TextScore:
    """Accuracy, macro F1 and Matthews' correlation of a tagger's tags."""
    found = tagger.taggings([example.words for example in examples])
    report = score_tagging(
        [example.tags for example in examples],
        [one.tags for one in found],
        labels=tagger.tags,
        words=[example.words for example in examples],
        probabilities=[one.probabilities for one in found],
        worst=worst,
        unseen="count",
    )
    outputs = [" ".join(one.tags) for one in found]
    words = sum(len(example.words) for example in examples)
    figures = {key: Figure(value) for key, value in report.figures().items()}
    tables = report.tables()
    right = [
        [float(sum(map(operator.eq, example.tags, one.tags))), float(len(example.tags))]
        for example, one in zip(examples, found, strict=True)
    ]
    one_by_one = Examples(
        [" ".join(example.words) for example in examples],
        [" ".join(example.tags) for example in examples],
        outputs,
        {"accuracy": {"kind": "mean", "values": right}},
    )
    return TextScore(name, words, "words", figures, tables, report.as_json(), outputs, one_by_one)
