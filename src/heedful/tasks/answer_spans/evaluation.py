"""Evaluation of answers in texts, with the figures of SQuAD's official scorers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.basics.files import atomic_file
from heedful.data.examples import SpanQuestion
from heedful.data.readers.questions import check_names, write_predictions
from heedful.evaluation.outcome import Examples, Figure, ReportTable
from heedful.evaluation.span_answers import Scores, Threshold, best_threshold, summary
from heedful.inference.span_reader import SpanAnswer, SpanReader
from heedful.tasks.answer_spans.training import scores_of
from heedful.tasks.texts.evaluation_options import TextEvaluation
from heedful.tasks.texts.score import TextScore


@dataclass(frozen=True)
class SpanEvaluation(TextEvaluation):
    """What to score, and where to write SQuAD's prediction file."""

    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            help="answer-spans: write the official prediction file of SQuAD, a JSON object from "
            "identifiers to answers.",
        ),
    ] = None


def score_spans(
    name: str, reader: SpanReader, examples: Sequence[SpanQuestion], worst: int
) -> TextScore:
    """Exact match and F1 in percent; with questions without answer, also of both kinds."""
    found = reader.predict([(one.question, one.context) for one in examples])
    scores = scores_of(examples, [one.answer for one in found])
    answerable = [bool(one.answers) for one in examples]
    figures = summary(scores, answerable)
    details: dict[str, Any] = dict(figures)
    if not all(answerable):
        details["threshold"] = reader.threshold if reader.may_refuse else None
        for key, best in _best(examples, found, answerable).items():
            figures[key] = details[key] = 100 * best.score
            details[f"{key}_threshold"] = best.value
    outputs = [one.answer for one in found]
    right = [" | ".join(dict.fromkeys(text for text, _ in one.answers)) for one in examples]
    texts = [f"{one.question} ⏎ {one.context}" for one in examples]
    measures = {
        key: {"kind": "mean", "values": [[100 * getattr(one, field), 1.0] for one in scores]}
        for key, field in (("exact_match", "exact"), ("f1", "f1"))
    }
    rows = [(key.replace("_", " "), f"{value:.2f}") for key, value in figures.items()]
    tables = [ReportTable(f"{len(examples):,} questions", ("score", "%"), rows)]
    if worst:
        tables.append(_worst(examples, outputs, right, scores, worst))
    return TextScore(
        name,
        len(examples),
        "questions",
        {key: Figure(value, "%") for key, value in figures.items()},
        tables,
        details,
        outputs,
        Examples(texts, right, outputs, measures),
    )


def _best(
    examples: Sequence[SpanQuestion], found: Sequence[SpanAnswer], answerable: Sequence[bool]
) -> dict[str, Threshold]:
    """The best thresholds on these examples, as SQuAD 2.0's scorer reports them."""
    always = scores_of(examples, [one.best.text if one.best else "" for one in found])
    nothing = [one.no_answer for one in found]
    return {
        "best_exact_match": best_threshold(nothing, [one.exact for one in always], answerable),
        "best_f1": best_threshold(nothing, [one.f1 for one in always], answerable),
    }


def _worst(
    examples: Sequence[SpanQuestion],
    outputs: Sequence[str],
    right: Sequence[str],
    scores: Sequence[Scores],
    count: int,
) -> ReportTable:
    order = sorted(range(len(examples)), key=lambda place: scores[place].f1)[:count]
    rows = [
        (
            examples[place].question,
            outputs[place] or "(no answer)",
            right[place] or "(no answer)",
            f"{100 * scores[place].f1:.0f}",
        )
        for place in order
    ]
    return ReportTable("Lowest F1", ("question", "answer", "right", "F1"), rows)


def check_identifiers(examples: Sequence[SpanQuestion]) -> None:
    """Raise UserError unless each question has an identifier of its own."""
    check_names([one.name for one in examples], "--predictions")


def save_predictions(path: Path, examples: Sequence[SpanQuestion], outputs: Sequence[str]) -> None:
    """Write the official prediction file, atomically."""
    names = [one.name for one in examples]
    with atomic_file(path) as file:
        file.write(write_predictions(dict(zip(names, outputs, strict=True))).encode("utf-8"))
