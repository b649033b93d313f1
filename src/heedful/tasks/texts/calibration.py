"""Calibration of the heads of runs for single texts."""

from collections.abc import Sequence
from typing import Any, cast

from heedful.basics.errors import UserError
from heedful.data.examples import Example
from heedful.evaluation.calibration import Calibration
from heedful.tasks.calibrating import Calibrated, calibrate
from heedful.tasks.spec import Opening, spec_named
from heedful.tasks.texts.run import TextRun
from heedful.tasks.texts.spec import HeadSpec, TextSpec


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


def _head(run: TextRun, head: str | None) -> tuple[str, HeadSpec]:
    """The head that is calibrated, and its task."""
    own = cast(TextSpec, spec_named(run.recipe.task))
    heads: dict[str, Any] = {
        name: spec
        for name, task in own.heads(run.recipe).items()
        if isinstance(spec := spec_named(task), HeadSpec) and spec.has_probabilities
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
