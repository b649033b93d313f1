"""The temperatures of a run's probabilities: ``calibration.json``."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.runs.manifest import read_sealed, write_sealed
from heedful.runs.run import Run

FILE = "calibration.json"


@dataclass(frozen=True)
class Temperature:
    """What the logits of a head are divided by, and how it was fitted.

    Attributes:
        value: above 0.
        checkpoint: the name of the checkpoint that it was fitted for.
        examples: number of validation examples.
        before: mean cross-entropy of their labels (nats) with a temperature of 1.
        after: the same with this temperature.
    """

    value: float
    checkpoint: str
    examples: int
    before: float
    after: float


def read_temperatures(run: Run) -> dict[str, Temperature]:
    """Head → temperature; empty for a run that is not calibrated.

    Raises:
        UserError: the file is damaged or was changed.
    """
    path = run.path / FILE
    if not path.exists():
        return {}
    values = read_sealed(run.path, FILE, sealed=run.manifest is not None)
    heads = values.get("heads")
    if not isinstance(heads, dict) or not all(map(_is_temperature, heads.values())):
        raise UserError(f"{path}: not the temperatures of heads; the file is damaged: delete it")
    return {str(name): Temperature(**own) for name, own in heads.items()}


def temperature_of(run: Run, head: str, checkpoint: str | int | None) -> float:
    """The temperature of a head; 1 if there is none for the checkpoint, which a notice reports."""
    found = read_temperatures(run).get(head)
    if found is None:
        return 1.0
    used = run.chosen(checkpoint).path.name
    if used != found.checkpoint:
        notice(
            f"{run.path}: probabilities are not calibrated, because the temperature was fitted for "
            f"{found.checkpoint} and {used} is used; fit it again: heedful calibrate"
        )
        return 1.0
    return found.value


def write_temperature(run: Run, head: str, temperature: Temperature) -> Path:
    """Keep the temperature of a head in the run; returns the file."""
    known = {**read_temperatures(run), head: temperature}
    heads = {name: asdict(own) for name, own in known.items()}
    write_sealed(run.path, FILE, {"heads": heads})
    return run.path / FILE


def _is_temperature(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != Temperature.__dataclass_fields__.keys():
        return False
    numbers = [value[name] for name in ("value", "before", "after")]
    sound = all(type(one) in (int, float) and math.isfinite(one) for one in numbers)
    named = isinstance(value["checkpoint"], str) and type(value["examples"]) is int
    return sound and named and value["value"] > 0
