"""The cost of training: what was spent until a validation loss was reached."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Point(NamedTuple):
    """A validation of a run.

    Attributes:
        loss: the validation loss; None if the task has several.
        operations: floating-point operations of training until then.
        minutes: training time until then.
        step: its step.
        value: the figure that runs are compared by.
    """

    loss: float | None
    operations: float
    minutes: float
    step: float
    value: float | None


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
        else:
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
        points.append(Point(record.get("loss"), operations, minutes, step, record.get(by)))
    return points


def cost_to(level: float, curve: Sequence[Point]) -> Spent | None:
    """The cost to reach a validation loss, interpolated linearly between validations.

    Returns:
        None if it is never reached.
    """
    before: tuple[float, Point] | None = None
    for point in curve:
        loss = point.loss
        if loss is None:
            continue
        if loss <= level:
            after = (point.operations, point.minutes, point.step)
            if before is None:
                return Spent(*after, at_most=loss < level)
            above, known = before
            share = (above - level) / (above - loss)
            start = (known.operations, known.minutes, known.step)
            operations, minutes, steps = (
                a + share * (b - a) for a, b in zip(start, after, strict=True)
            )
            return Spent(operations, minutes, steps, at_most=False)
        before = (loss, point)
    return None
