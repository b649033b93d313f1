"""Evaluation of taggers."""

import operator
from collections.abc import Sequence

from heedful.data.examples import Tagged, tagged_only
from heedful.evaluation.classification import score_tagging
from heedful.evaluation.outcome import Examples, Figure
from heedful.inference.tagger import Tagger
from heedful.tasks.texts.score import TextScore


def score_tags(name: str, tagger: Tagger, examples: Sequence[Tagged], worst: int) -> TextScore:
    """Accuracy, macro F1 and Matthews' correlation of a tagger's tags."""
    found = tagger.taggings([example.words for example in examples])
    chosen = [tagged_only(one, own.tags) for one, own in zip(examples, found, strict=True)]
    report = score_tagging(
        [example.labels for example in examples],
        chosen,
        labels=tagger.tags,
        words=[tagged_only(one, one.words) for one in examples],
        probabilities=[
            tagged_only(one, own.probabilities) for one, own in zip(examples, found, strict=True)
        ],
        worst=worst,
        unseen="count",
    )
    outputs = [" ".join(one.tags) for one in found]
    words = sum(len(example.labels) for example in examples)
    figures = {key: Figure(value) for key, value in report.figures().items()}
    tables = report.tables()
    right = [
        [float(sum(map(operator.eq, example.labels, tags))), float(len(example.labels))]
        for example, tags in zip(examples, chosen, strict=True)
    ]
    one_by_one = Examples(
        [" ".join(example.words) for example in examples],
        [" ".join(example.tags) for example in examples],
        outputs,
        {"accuracy": {"kind": "mean", "values": right}},
    )
    return TextScore(name, words, "words", figures, tables, report.as_json(), outputs, one_by_one)
