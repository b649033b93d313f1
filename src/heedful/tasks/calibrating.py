"""Fits the temperature of a run's probabilities, and keeps it in the run."""

from collections.abc import Callable
from typing import Any, NamedTuple

from heedful.basics.notices import notice
from heedful.evaluation.calibration import (
    LEAST_TEMPERATURE,
    MOST_TEMPERATURE,
    Calibration,
    fit_temperature,
)
from heedful.runs.calibration import Temperature, write_temperature
from heedful.runs.run import Run

_CERTAIN = 1e-9
"""A cross-entropy below it is that of right predictions without any doubt."""


class Calibrated(NamedTuple):
    """A fitted temperature, and the calibration of the examples that it was fitted on."""

    head: str
    temperature: Temperature
    before: Calibration
    after: Calibration

    def as_json(self) -> dict[str, Any]:
        """The result as a value that :mod:`json` can write."""
        kept = {"head": self.head, **vars(self.temperature)}
        calibrations = {"before": self.before.as_json(), "after": self.after.as_json()}
        return {**kept, "calibration": calibrations}


def calibrate(
    run: Run,
    head: str,
    checkpoint: str | int | None,
    measure: Callable[[float], Calibration],
    surprise: Callable[[float], float],
) -> Calibrated:
    """Fit the temperature of a head and write it to the run.

    Args:
        run: the run.
        head: the name of the head.
        checkpoint: the checkpoint that is used.
        measure: the calibration of the validation examples at a temperature.
        surprise: the mean cross-entropy of their labels (nats) at a temperature.
    """
    value = fit_temperature(surprise)
    first, best = (max(0.0, surprise(one)) for one in (1.0, value))
    if best >= first:
        value, best = 1.0, first
    inside = 1.01 * LEAST_TEMPERATURE < value < 0.99 * MOST_TEMPERATURE
    if not inside or best < _CERTAIN:
        notice(
            f"the validation data do not determine the temperature ({value:.3g}): all predictions "
            "on them are right, or they are no better than chance"
        )
    before, after = measure(1.0), measure(value)
    used = run.chosen(checkpoint).path.name
    temperature = Temperature(value, used, before.count, first, best)
    write_temperature(run, head, temperature)
    return Calibrated(head, temperature, before, after)
