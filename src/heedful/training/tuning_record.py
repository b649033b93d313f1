"""The record of a search, ``tuning.json``, and its table."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from heedful.basics.files import write_json
from heedful.evaluation.outcome import ReportTable
from heedful.runs.run import Run
from heedful.training.run_sets import read_record

FORMAT = 1
RECORD = "tuning.json"


@dataclass
class Trial:
    """One run of a search."""

    folder: str
    """Name within the search's folder."""
    seed: int
    settings: dict[str, Any]
    """The searched settings by key."""
    state: str = "running"
    """``running``, ``complete``, ``pruned``, ``diverged`` or ``failed``."""
    value: float | None = None
    """The compared figure of the chosen checkpoint."""
    validation: dict[str, float] = field(default_factory=dict)
    """All figures of that checkpoint."""
    chosen: str | None = None
    step: int = 0
    minutes: float = 0.0
    """Training time; validation and checkpoints do not count."""
    operations: float = 0.0
    validations: list[tuple[int, float]] = field(default_factory=list)
    """Step and figure of each validation."""

    @property
    def ended(self) -> bool:
        """Whether the trial has ended."""
        return self.state != "running"


@dataclass
class Tuning:
    """A search: its settings and its results."""

    begun_with: dict[str, Any]
    """Settings that must not change when the search is resumed: recipe, space, minutes, pruning."""
    compared_by: str
    higher: bool
    trials: list[Trial] = field(default_factory=list)
    further: list[Trial] = field(default_factory=list)
    """Trials with the winner's settings and other seeds."""
    parameters: int = 0
    """Of the winner."""

    @property
    def winner(self) -> int | None:
        """The index of the best complete trial; the first of equals."""
        whole = [
            (place, trial.value)
            for place, trial in enumerate(self.trials)
            if trial.state == "complete" and trial.value is not None
        ]
        if not whole:
            return None
        sign = -1 if self.higher else 1
        return min(whole, key=lambda each: sign * each[1])[0]

    def as_json(self) -> dict[str, Any]:
        """The content of ``tuning.json``."""
        return {"format": FORMAT, "winner": self.winner, **asdict(self)}


def read_tuning(folder: Path) -> Tuning | None:
    """The search in a folder; None if there is none.

    Raises:
        UserError: ``tuning.json`` is damaged or has another format version.
    """
    return read_record(folder / RECORD, FORMAT, _tuning)


def _tuning(values: dict[str, Any]) -> Tuning:
    return Tuning(
        begun_with=values["begun_with"],
        compared_by=values["compared_by"],
        higher=values["higher"],
        trials=[_trial(trial) for trial in values["trials"]],
        further=[_trial(trial) for trial in values["further"]],
        parameters=values["parameters"],
    )


def _trial(values: dict[str, Any]) -> Trial:
    pairs = [(step, value) for step, value in values["validations"]]
    return Trial(**{**values, "validations": pairs})


def write_tuning(folder: Path, tuning: Tuning) -> None:
    """Write ``tuning.json`` atomically."""
    write_json(folder / RECORD, tuning.as_json())


def read_figures(run: Run, compared_by: str) -> tuple[list[tuple[int, float]], dict[str, Any]]:
    """The validations of a run (step, figure) and its last training figures."""
    validations: list[tuple[int, float]] = []
    last: dict[str, Any] = {}
    for record in run.metrics():
        if record["kind"] == "train":
            last = record
        elif compared_by in record:
            validations.append((record["step"], record[compared_by]))
    return validations, last


def tables_of(tuning: Tuning) -> list[ReportTable]:
    """The tables of a search for the terminal."""
    space: Mapping[str, Any] = tuning.begun_with["space"]
    bleu = ["bleu"] if any("bleu" in trial.validation for trial in tuning.trials) else []
    names = [tuning.compared_by]
    names += [name for name in (*bleu, "loss") if name != tuning.compared_by]
    header = ("trial", *space, *names, "steps", "minutes", "PFLOP", "")
    rows = []
    for place, trial in enumerate(tuning.trials):
        remark = "winner" if place == tuning.winner else trial.state
        rows.append(
            _row(str(place), [trial.settings.get(key) for key in space], trial, names, remark)
        )
    tables = [ReportTable(f"{len(rows)} trials", header, rows)]
    if tuning.further:
        rows = [_row(str(trial.seed), [], trial, names, trial.state) for trial in tuning.further]
        header = ("seed", *names, "steps", "minutes", "PFLOP", "")
        tables.append(ReportTable("the winner with further seeds", header, rows))
    return tables


def _row(
    name: str, settings: list[Any], trial: Trial, names: list[str], remark: str
) -> tuple[str, ...]:
    figures = [trial.validation.get(name) for name in names]
    return (
        name,
        *("not set" if value is None else str(value) for value in settings),
        *("" if value is None else f"{value:.3f}" for value in figures),
        f"{trial.step:,}",
        f"{trial.minutes:.1f}",
        f"{trial.operations / 1e15:.3f}",
        remark,
    )
