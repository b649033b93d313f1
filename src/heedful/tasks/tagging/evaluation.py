"""Evaluation of taggers."""

import operator
from collections.abc import Sequence
from typing import Any

from heedful.data.examples import Tagged, outside_if_untagged, tagged_only
from heedful.data.tag_schemes import OUTSIDE, mark_spans
from heedful.evaluation.calibration import calibration_details, calibration_table
from heedful.evaluation.classification import score_tagging
from heedful.evaluation.outcome import Examples, Figure
from heedful.evaluation.span_scores import SpanReport, score_spans
from heedful.inference.tagger import Tagger
from heedful.tasks.tagging.calibration import calibration_of
from heedful.tasks.texts.score import TextScore


def score_tags(name: str, tagger: Tagger, examples: Sequence[Tagged], worst: int) -> TextScore:
    """Accuracy, macro F1 and Matthews' correlation of a tagger's tags, and the F1 of spans."""
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
    of_spans = _span_reports(tagger, examples, [own.tags for own in found])
    outputs = [" ".join(one.tags) for one in found]
    now, before = calibration_of(found, examples), None
    if tagger.temperature != 1.0:
        unscaled = tagger.at(1.0).taggings([example.words for example in examples])
        before = calibration_of(unscaled, examples)
    values, measures = report.figures(), _measures(examples, chosen)
    details = report.as_json() | calibration_details(now, before, tagger.temperature)
    tables = report.tables()
    tables.insert(1, calibration_table(now, before))
    for own in of_spans:
        values |= own.figures()
        key = "strict_spans" if own.scheme else "spans"
        details[key] = own.as_json()
        f1 = "strict_span_f1" if own.scheme else "span_f1"
        measures[f1] = {"kind": "f1", "values": [list(one) for one in own.sentences]}
        tables.insert(1, own.table())
    one_by_one = Examples(
        [" ".join(example.words) for example in examples],
        [" ".join(example.tags) for example in examples],
        outputs,
        measures,
    )
    words = sum(len(example.labels) for example in examples)
    figures = {key: Figure(value) for key, value in values.items()} | now.figures()
    return TextScore(name, words, "words", figures, tables, details, outputs, one_by_one)


def _measures(examples: Sequence[Tagged], chosen: Sequence[Sequence[str]]) -> dict[str, Any]:
    right = [
        [float(sum(map(operator.eq, example.labels, tags))), float(len(example.labels))]
        for example, tags in zip(examples, chosen, strict=True)
    ]
    return {"accuracy": {"kind": "mean", "values": right}}


def _span_reports(
    tagger: Tagger, examples: Sequence[Tagged], given: Sequence[Sequence[str]]
) -> list[SpanReport]:
    """The scores of spans, and those in the tagger's scheme; none if the tagger's tags mark no
    spans. Gold tags that mark none are outside of spans."""
    if not mark_spans(tagger.tags):
        return []
    gold = [
        [tag if mark_spans([tag]) else OUTSIDE for tag in outside_if_untagged(one, one.tags)]
        for one in examples
    ]
    sides = zip(examples, given, strict=True)
    chosen = [outside_if_untagged(example, tags) for example, tags in sides]
    schemes = [None] if tagger.scheme is None else [None, tagger.scheme]
    return [score_spans(gold, chosen, scheme) for scheme in schemes]
