"""The cost of training: what was spent until a validation loss was reached."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Point(NamedTuple):
    """A validation of a run.

    Attributes:
        loss: the validation loss.
        operations: floating-point operations of training until then.
        minutes: training time until then.
        step: its step.
        value: the figure that runs are compared by.
    """

    loss: float
    operations: float
    minutes: float
    step: float
    value: float


class Spent(NamedTuple):
    """The cost to reach a loss; ``at_most`` if the first validation was already below it."""

    operations: float
    minutes: float
    steps: float
    at_most: bool


def loss_curve(records: Iterable[Mapping[str, Any]], by: str = "loss") -> list[Point]:
    """The validations of a run, with the training cost until their step.

    Args:
        records: the records of ``metrics.jsonl``.
        by: the figure that runs are compared by.
    """
    spent = [(0, 0.0, 0.0)]
    validations = []
    for record in records:
        if record["kind"] == "train":
            spent.append((record["step"], record["operations"], record["seconds"] / 60))
        elif "loss" in record:
            validations.append(record)
    points = []
    for record in validations:
        step = record["step"]
        before = max(each for each in spent if each[0] <= step)
        after = min((each for each in spent if each[0] >= step), default=before)
        share = (step - before[0]) / max(1, after[0] - before[0])
        operations, minutes = (
            before[place] + share * (after[place] - before[place]) for place in (1, 2)
        )
        value = record.get(by, record["loss"])
        points.append(Point(record["loss"], operations, minutes, step, value))
    return points


def cost_to(level: float, curve: Sequence[Point]) -> Spent | None:
    """The cost to reach a validation loss, interpolated linearly between validations.

    Returns:
        None if it is never reached.
    """
    before: Point | None = None
    for point in curve:
        if point.loss <= level:
            if before is None:
                return Spent(point.operations, point.minutes, point.step, point.loss < level)
            share = (before.loss - level) / (before.loss - point.loss)
            operations, minutes, steps = (
                before[place] + share * (point[place] - before[place]) for place in (1, 2, 3)
            )
            return Spent(operations, minutes, steps, at_most=False)
        before = point
    return None
