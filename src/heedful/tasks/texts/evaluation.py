"""Evaluation of runs for single texts, on the test examples of the run or on other files."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from heedful.basics.errors import UserError
from heedful.data.examples import Example
from heedful.evaluation.outcome import Evaluation
from heedful.runs.settings import NO_TEST
from heedful.tasks.spec import Opening, spec_named, spec_of_run
from heedful.tasks.texts.evaluation_options import TextEvaluation
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.run import TextRun
from heedful.tasks.texts.score import ScoredHead, Scorer, TextScore


def evaluate_texts(
    run: TextRun, data: Sequence[str] | None, options: TextEvaluation, opening: Opening
) -> Evaluation:
    """Evaluate each head of a run.

    Args:
        run: the run.
        data: files in the format of the training data; the run's test examples if None.
        options: what to score.
        opening: loads the run.

    Raises:
        UserError: there are no examples, or a file cannot be used.
    """
    scores = score_text_run(run, data, options, opening)
    point = run.chosen(opening.checkpoint).path.name
    how = {"checkpoint": point, "precision": opening.precision}
    several = len(scores) > 1
    details = {
        score.name: {"examples": score.examples, "unit": score.unit, **score.details}
        for score in scores
    }
    return Evaluation(
        str(run.path),
        {
            f"{score.name}.{key}" if several else key: figure
            for score in scores
            for key, figure in score.figures.items()
        },
        outputs=None if several else scores[0].outputs,
        tables=[
            replace(table, title=f"{score.name}: {table.title}") if several else table
            for score in scores
            for table in score.tables
        ],
        details={"run": str(run.path), **how, "scores": details},
        settings=how,
        examples=None if several else scores[0].one_by_one,
    )


def score_text_run(
    run: TextRun,
    data: Sequence[str] | None = None,
    options: TextEvaluation | None = None,
    opening: Opening | None = None,
) -> list[TextScore]:
    """Like :func:`evaluate_texts`, but returns one score per head; default: all heads."""
    options, opening = options or TextEvaluation(), opening or Opening()
    if options.encoding is not None and data is None:
        raise UserError("--encoding needs --data")
    own = spec_of_run(run.path)[1]
    heads, head = own.heads(run.recipe), options.head
    if head is not None and head not in heads:
        raise UserError(f"{run.path} has no head '{head}'; its heads are {', '.join(heads)}")
    if data is not None and head is None and len(heads) > 1:
        raise UserError(f"{run.path} has several heads: give the head that --data is for (--head)")
    scores = []
    for name, task in heads.items():
        if head not in (None, name):
            continue
        spec = cast(Scorer, spec_named(task))
        if data is None:
            examples = spec.kept(run, name, "test")
        else:
            examples = read_examples(run, name, data, options.encoding)
        if data is not None and not examples:
            raise UserError(f"{' and '.join(data)} has no examples to evaluate on")
        if examples:
            worst = max(options.sentences, 0)
            scores.append(spec.score(ScoredHead(run, name, examples, worst, opening)))
    if not scores:
        raise UserError(f"{run.path} {NO_TEST}; give files with --data")
    return scores


def read_examples(
    run: TextRun, name: str, data: Sequence[str], encoding: str | None
) -> Sequence[Example]:
    """The examples of files, read like the training data of the head ``name``."""
    nothing = {"validation": [], "test": [], "validation_share": 0.0, "test_share": 0.0}
    chosen = {} if encoding is None else {"encoding": encoding}
    own = run.recipe.sets()[name].held_out()
    others = own.model_copy(update={"train": list(data), **nothing, **chosen})
    with tempfile.TemporaryDirectory() as folder:
        return list(Examples(name, others, run.recipe.seed, Path(folder), None).of("train"))
