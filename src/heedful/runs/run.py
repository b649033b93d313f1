"""The run: a folder with everything that belongs to one training."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.basics.bounded_reading import read_json_lines
from heedful.basics.errors import UserError
from heedful.runs.checkpoints import Checkpoint, find_checkpoint, whole_checkpoints
from heedful.runs.manifest import FACTS, read_sealed, require_unchanged
from heedful.runs.settings import Recipe

FORMAT = 1
RESULT, AVERAGE = "result.json", "average"


@dataclass(frozen=True)
class Run:
    """A run on disk; :func:`heedful.runs.opening.open_run` opens one."""

    path: Path
    recipe: Recipe
    facts: dict[str, Any]
    """``run.json``: format, versions, hashes and counts of the data, vocabulary, and the run that
    it was started from."""
    manifest: dict[str, str] | None = None
    """Hashes of the files that are written once; None in runs of versions without hashes."""

    def require_unchanged(self, *names: str) -> None:
        """Raise UserError if one of the files, or a file in one of the folders, has changed.

        Args:
            names: paths relative to the run's folder; folders with a trailing slash.
        """
        require_unchanged(self.path, self.manifest, *names)

    @property
    def train_folder(self) -> Path:
        """The folder of the encoded training corpus."""
        return self.path / "data" / "train"

    @property
    def verifies_when_read(self) -> bool:
        """Whether the manifest has no hashes of the encoded training corpus but that of its index.

        Its files are then verified when they are first read.
        """
        return self.verifies(self.train_folder)

    def verifies(self, store: Path) -> bool:
        """The same as :attr:`verifies_when_read` for another store of the run."""
        before = store.relative_to(self.path).as_posix() + "/"
        files = [name for name in self.manifest or {} if name.startswith(before)]
        return len(files) == 1

    @property
    def checkpoint_folder(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def start_folder(self) -> Path:
        """The folder of the initial weights, if the run was started from another one."""
        return self.path / "start"

    @property
    def metrics_file(self) -> Path:
        """The figures of training and validation, one JSON object per line."""
        return self.path / "metrics.jsonl"

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The records of ``metrics.jsonl``, each with ``kind`` and ``step``.

        Raises:
            UserError: the file is damaged.
        """
        for record in read_json_lines(self.metrics_file, growing=True):
            if not isinstance(record, dict) or not (
                isinstance(record.get("kind"), str) and type(record.get("step")) is int
            ):
                raise UserError(f"{self.metrics_file}: a line is not a record; the file is damaged")
            yield record

    @property
    def result(self) -> dict[str, Any] | None:
        """``result.json``, written at the end of training: the chosen checkpoint, and the reason.

        Raises:
            UserError: it is damaged or was changed.
        """
        if not (self.path / RESULT).exists():
            return None
        values = read_sealed(self.path, RESULT, sealed=self.manifest is not None)
        figures = values.get("validation", {})
        if (
            not isinstance(values.get("chosen"), str)
            or type(values.get("step")) is not int
            or not isinstance(figures, dict)
            or not all(isinstance(figure, int | float) for figure in figures.values())
        ):
            raise UserError(
                f"{self.path / RESULT}: 'chosen', 'step' or 'validation' is missing or of a wrong "
                "type; the file is damaged: delete it to use the best checkpoint"
            )
        return values

    def checkpoints(self) -> list[Checkpoint]:
        """The undamaged checkpoints, by step."""
        return whole_checkpoints(self.checkpoint_folder)

    def chosen(self, name: str | int | None = None) -> Checkpoint:
        """The checkpoint: ``best``, ``last``, ``average``, a step; the chosen one by default.

        Training chooses one at its end; until then, it is the best on validation so far.

        Raises:
            UserError: the checkpoint does not exist.
        """
        if name is None and (result := self.result) is not None:
            where = str(self.path / RESULT)
            chosen = find_checkpoint(self.checkpoint_folder, result["chosen"], where)
            if chosen is not None:
                return chosen
        if name == AVERAGE:
            average = find_checkpoint(self.checkpoint_folder, AVERAGE, str(self.path))
            if average is None:
                raise UserError(
                    f"{self.path} has no average: training.average_checkpoints writes one at the "
                    "end of training"
                )
            return average
        found = self.checkpoints()
        if not found:
            raise UserError(f"{self.path} has no checkpoint yet; train first: heedful train --out")
        if name is None or name == "best":
            best = [point for point in found if point.state.get("best_step") == point.step]
            return best[-1] if best else found[-1]
        if name == "last":
            return found[-1]
        for point in found:
            if str(name) in (str(point.step), point.path.name):
                return point
        steps = ", ".join(str(point.step) for point in found)
        raise UserError(f"{self.path} has no checkpoint '{name}'; use best, last, {steps}")


def no_examples(path: Path) -> UserError:
    """The error for a damaged file of held-out examples."""
    return UserError(f"{path}: a line is not an example of this run; the file is damaged")


def other_vocabulary(run: Path) -> UserError:
    """The error for a vocabulary whose size differs from the run's facts."""
    return UserError(
        f"{run / 'tokeniser'}: the size of the vocabulary differs from {run / FACTS}; the files "
        "belong to different runs"
    )
