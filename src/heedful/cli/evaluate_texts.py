"""``heedful evaluate`` of runs that classify, tag, fill in or write."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.basics.errors import UserError

if TYPE_CHECKING:
    from heedful.tasks.texts.run import TextRun


def evaluate_texts(
    run: "TextRun",
    *,
    data: list[str] | None,
    head: str | None,
    encoding: str | None,
    mistakes: int,
    as_json: bool,
    chosen: dict[str, Any],
    refused: list[str],
) -> None:
    """Score a run for single texts and show it.

    Raises:
        UserError: an option is for translators only, or there is nothing to score.
    """
    if encoding is not None and data is None:
        raise UserError("--encoding is for the files of --data")
    if refused:
        raise UserError(f"{refused[0]} is for runs that translate; {run.path} is none")
    import json

    from heedful.cli.drawing import draw
    from heedful.tasks.texts.evaluation import joined_tables, record_text_scores, score_text_run

    scores = score_text_run(
        run, data=data, encoding=encoding, head=head, mistakes=mistakes, **chosen
    )
    point = run.chosen(chosen["checkpoint"]).path.name
    how = {"checkpoint": point, "precision": chosen["precision"]}
    if as_json:
        made = {
            score.name: {"examples": score.examples, "unit": score.unit, **score.details}
            for score in scores
        }
        print(json.dumps({"run": str(run.path), **how, "scores": made}, ensure_ascii=False))
    else:
        draw(joined_tables(scores))
    if data is None:
        record_text_scores(run, scores, how)


def given_options(options: dict[str, Any]) -> list[str]:
    """The names of those options that were given a value."""
    return [name for name, value in options.items() if value not in (None, False, Path())]
