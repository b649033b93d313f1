"""Calibration of the heads of runs for single texts."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from heedful.basics.errors import UserError
from heedful.data.examples import Example
from heedful.evaluation.calibration import Calibration
from heedful.tasks.calibrating import Calibrated, calibrate
from heedful.tasks.spec import Opening, spec_named
from heedful.tasks.texts.run import TextRun


class _Labels(Protocol):
    """A task whose predictor has probabilities of labels."""

    def kept(self, run: TextRun, name: str, part: str) -> Sequence[Example]: ...
    def calibration_of(self, predictor: Any, examples: Sequence[Any]) -> Calibration: ...
    def surprise_of(self, predictor: Any, examples: Sequence[Any]) -> Callable[[float], float]: ...


def calibrate_head(run: TextRun, head: str | None, opening: Opening) -> Calibrated:
    """Fit the temperature of a head on the validation examples of the run.

    Raises:
        UserError: there are no validation examples, or no head with probabilities.
    """
    name, spec = _head(run, head)
    examples = spec.kept(run, name, "validation")
    if not examples:
        raise UserError(
            f"{run.path} has no validation examples (its recipe has no data.validation), on which "
            "the temperature is fitted"
        )
    predictor = opening.load(run.path, head=name)

    def measure(temperature: float) -> Calibration:
        return spec.calibration_of(predictor.at(temperature), examples)

    return calibrate(run, name, opening.checkpoint, measure, spec.surprise_of(predictor, examples))


def calibration_of_head(run: TextRun, head: str | None, opening: Opening) -> Calibration:
    """The calibration of a head on the test examples of the run, or its validation examples.

    Raises:
        UserError: there are neither, or no head with probabilities.
    """
    name, spec = _head(run, head)
    examples: Sequence[Example] = spec.kept(run, name, "test") or spec.kept(run, name, "validation")
    if not examples:
        raise UserError(f"{run.path} has no test examples and no validation examples")
    return spec.calibration_of(opening.load(run.path, head=name), examples)


def _head(run: TextRun, head: str | None) -> tuple[str, _Labels]:
    """The head that is calibrated, and its task."""
    own = spec_named(run.recipe.task)
    heads = {
        name: cast(_Labels, spec_named(task))
        for name, task in own.heads(run.recipe).items()
        if getattr(spec_named(task), "has_probabilities", False)
    }
    if not heads:
        raise UserError(
            f"{run.path} is a run for {own.name}; only the probabilities of labels and tags can be "
            "calibrated"
        )
    if head is None and len(heads) == 1:
        head = next(iter(heads))
    if head not in heads:
        what = "several heads" if head is None else f"no head '{head}' with labels"
        raise UserError(f"{run.path} has {what}: choose one (--head {', --head '.join(heads)})")
    return head, heads[head]
