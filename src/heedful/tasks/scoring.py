"""Scores runs on their own test sets, and records the scores in them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.files import write_json
from heedful.basics.notices import notice
from heedful.runs.summary import record
from heedful.tasks.options import use_threads
from heedful.tasks.spec import Opening, spec_of_run
from heedful.training.comparison_record import Comparison

if TYPE_CHECKING:
    from heedful.evaluation.outcome import Evaluation
    from heedful.runs.run import Run

TEST = "test.json"
"""The scores of a run of a comparison, with the output for each example."""


def record_evaluation(run: "Run", found: "Evaluation", opening: Opening) -> None:
    """Record an evaluation on the run's own test set in the run."""
    point = run.chosen(opening.checkpoint).path.name
    how = {"checkpoint": point, "precision": opening.precision}
    scores = {name: figure.recorded() for name, figure in found.figures.items()}
    record(run, {**how, **found.settings, "scores": scores})


def score_trainings(folder: Path, comparison: Comparison) -> None:
    """Score each complete run of a comparison on its test set, unless it was scored before.

    Raises:
        UserError: a run was scored with another checkpoint than it uses now.
    """
    done = [each for each in comparison.wanted if each.state == "complete"]
    for place, training in enumerate(done, start=1):
        run, spec = spec_of_run(folder / training.folder)
        if not run.recipe.is_tested or _is_scored(run):
            continue
        notice(f"scoring {place} of {len(done)}: {training.variant}, seed {training.seed}")
        use_threads(run.recipe.training.threads)
        opening = Opening(device=run.recipe.training.device)
        found = spec.evaluate(run, None, spec.comparison_options(), opening)
        record_evaluation(run, found, opening)
        write_json(run.path / TEST, _test_json(run, found))


def _is_scored(run: "Run") -> bool:
    path = run.path / TEST
    if not path.exists():
        return False
    scored, chosen = read_json(path).get("checkpoint"), run.chosen().path.name
    if scored != chosen:
        raise UserError(
            f"{run.path} was scored with checkpoint {scored}, but now uses {chosen}: its test set "
            f"has been used; delete {path} to score it again"
        )
    return True


def _test_json(run: "Run", found: "Evaluation") -> dict[str, Any]:
    return {
        "checkpoint": run.chosen().path.name,
        **found.settings,
        "figures": {name: figure._asdict() for name, figure in found.figures.items()},
        "examples": None if found.examples is None else found.examples.to_json(),
        "attention": list(found.attention),
    }
