"""The record of a comparison, ``comparison.json``."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from heedful.basics.files import write_json
from heedful.training.run_sets import read_record
from heedful.training.variants import Variant

FORMAT = 1
RECORD = "comparison.json"


@dataclass
class Training:
    """One run of a comparison."""

    variant: str
    """The name of its variant."""
    seed: int
    folder: str
    """Path within the comparison's folder."""
    state: str = "waiting"
    """``waiting``, ``running``, ``complete`` or ``failed``."""
    error: str | None = None
    max_steps: int | None = None
    """The steps of a budget of operations."""
    seconds: float = 0.0
    """Wall-clock time so far, with validation and checkpoints."""

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to train."""
        return self.state in ("complete", "failed")


@dataclass
class Refused:
    """A combination of values that is not a valid recipe."""

    name: str
    reason: str


@dataclass
class Comparison:
    """The variants of a comparison and the state of their runs."""

    begun_with: dict[str, Any]
    """Settings that must not change when the comparison is resumed: the recipe and the budget."""
    recipe: str
    task: str
    compared_by: str
    higher: bool
    budget: str
    baseline: str
    """The name of the variant that the others are compared with."""
    seeds: list[int]
    variants: list[Variant] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    """In the order of training; those of variants and seeds of earlier calls are kept."""

    @property
    def wanted(self) -> list[Training]:
        """The trainings of the current variants and seeds, in order."""
        found = {(each.variant, each.seed): each for each in self.trainings}
        return [
            found[variant.name, seed]
            for seed in self.seeds
            for variant in self.variants
            if (variant.name, seed) in found
        ]

    def as_json(self) -> dict[str, Any]:
        """The content of ``comparison.json``."""
        return {"format": FORMAT, **asdict(self)}


def read_comparison(folder: Path) -> Comparison | None:
    """The comparison in a folder; None if there is none.

    Raises:
        UserError: ``comparison.json`` is damaged or has another format version.
    """
    return read_record(folder / RECORD, FORMAT, _comparison)


def _comparison(values: dict[str, Any]) -> Comparison:
    return Comparison(
        **{
            **{key: value for key, value in values.items() if key != "format"},
            "variants": [Variant(**each) for each in values["variants"]],
            "refused": [Refused(**each) for each in values["refused"]],
            "trainings": [Training(**each) for each in values["trainings"]],
        }
    )


def write_comparison(folder: Path, comparison: Comparison) -> None:
    """Write ``comparison.json`` atomically."""
    write_json(folder / RECORD, comparison.as_json())
