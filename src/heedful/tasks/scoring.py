"""Scores runs on their own test sets, and records the scores in them; or on other data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.files import content_hash, write_json
from heedful.basics.notices import notice
from heedful.data.readers.folders import text_files
from heedful.runs.recipe import find_data
from heedful.runs.summary import record
from heedful.tasks.options import use_threads
from heedful.tasks.spec import Opening, spec_of_run
from heedful.training.comparison_record import RECORD, Comparison

if TYPE_CHECKING:
    from heedful.evaluation.outcome import Evaluation
    from heedful.runs.run import Run

TEST = "test.json"
"""The scores of a run of a comparison, with the output for each example."""


@dataclass(frozen=True)
class OtherTest:
    """Test data other than those of the recipe, and where their scores are written.

    Raises:
        UserError: ``folder`` is a comparison, or a file cannot be read.
    """

    files: Sequence[str]
    folder: Path

    def __post_init__(self) -> None:
        if (self.folder / RECORD).exists():
            raise UserError(f"{self.folder} is a comparison; give a new folder as --out")
        find_data(self.files, None, files_of=text_files)

    def hashes(self) -> dict[str, str]:
        """The hash of each file."""
        return {name: content_hash(Path(name)) for name in self.files if Path(name).is_file()}


def record_evaluation(run: "Run", found: "Evaluation", opening: Opening) -> None:
    """Record an evaluation on the run's own test set in the run."""
    point = run.chosen(opening.checkpoint).path.name
    how = {"checkpoint": point, "precision": opening.precision}
    scores = {name: figure.recorded() for name, figure in found.figures.items()}
    record(run, {**how, **found.settings, "scores": scores})


def score_trainings(folder: Path, comparison: Comparison, other: OtherTest | None = None) -> None:
    """Score each complete run of a comparison on its test set, unless it was scored before.

    Args:
        folder: the comparison's folder.
        comparison: its record.
        other: test data to score on instead, with the chosen checkpoints; the runs are not changed.

    Raises:
        UserError: a run was scored with another checkpoint than it uses now, or with other data.
    """
    files = None if other is None else list(other.files)
    data = {} if other is None else {"data": other.hashes()}
    done = [each for each in comparison.wanted if each.state == "complete"]
    for place, training in enumerate(done, start=1):
        run, spec = spec_of_run(folder / training.folder)
        path = (folder if other is None else other.folder) / training.folder / TEST
        if (other is None and not run.recipe.is_tested) or _is_scored(run, path, data):
            continue
        notice(f"scoring {place} of {len(done)}: {training.variant}, seed {training.seed}")
        use_threads(run.recipe.training.threads)
        opening = Opening(device=run.recipe.training.device)
        found = spec.evaluate(run, files, spec.comparison_options(), opening)
        if other is None:
            record_evaluation(run, found, opening)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {**_test_json(run, found), **data})


def _is_scored(run: "Run", path: Path, data: dict[str, Any]) -> bool:
    if not path.exists():
        return False
    known = read_json(path)
    scored, chosen = known.get("checkpoint"), run.chosen().path.name
    if known.get("data") != data.get("data"):
        raise UserError(f"{path} has the scores of other test data; give another --out")
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
