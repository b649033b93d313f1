"""The budget of a training in a comparison: steps, minutes or floating-point operations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from heedful.basics.device import choose_device
from heedful.basics.errors import UserError
from heedful.data.positions import SINGLE, Position
from heedful.runs.recipe import with_setting
from heedful.runs.registry import kind_of
from heedful.runs.run import Run
from heedful.runs.settings import Recipe
from heedful.training.run_sets import ENDING
from heedful.training.strategies import SingleProcess

_MEASURED = 64
"""Batches whose mean weight gives the operations of a step."""
_MOST_STEPS = 10**9
_UNITS = {"": "steps", "steps": "steps", "s": "s", "m": "m", "min": "m", "h": "h", "flops": "flops"}
_VALIDATIONS = 10
"""Validations of a training whose recipe would have fewer than half of them."""


@dataclass(frozen=True)
class Budget:
    """A limit for each training; without one, the recipe's own holds.

    Attributes:
        steps: the number of steps.
        minutes: training minutes, without validation and checkpoints.
        operations: floating-point operations of training.
        text: as it was given.
    """

    steps: int | None = None
    minutes: float | None = None
    operations: float | None = None
    text: str = "the recipe's"

    def apply(self, tables: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The tables of a recipe with this limit; operations are resolved by :func:`steps_of`."""
        found = dict(tables)
        if self == NO_BUDGET:
            return found
        training = dict(found.get("training", {}))
        training.pop("max_minutes", None)
        found["training"] = training
        if self.steps is not None:
            return with_setting(found, "training.max_steps", self.steps, where)
        if self.minutes is not None:
            found = with_setting(found, "training.max_minutes", self.minutes, where)
            if training.get("schedule") not in ENDING:
                found = with_setting(found, "training.max_steps", _MOST_STEPS, where)
        return found


NO_BUDGET = Budget()
"""The limits of the recipe."""


def read_budget(text: str | None) -> Budget:
    """Read ``2000`` (steps), ``90s``, ``10m``, ``1.5h`` or ``1e15flops``.

    Raises:
        UserError: the text is none of them, or the number is not positive.

    Example:
        >>> read_budget("1.5h").minutes, read_budget("2e3").steps
        (90.0, 2000)
    """
    if text is None:
        return NO_BUDGET
    expected = "give steps (2000), time (10m, 1.5h, 90s) or operations (1e15flops)"
    found = re.fullmatch(r"([0-9.]+(?:e\+?[0-9]+)?)\s*([a-z]*)", text.strip().lower())
    unit = _UNITS.get(found[2]) if found else None
    if found is None or unit is None:
        raise UserError(f"--budget {text}: {expected}")
    try:
        number = float(found[1])
    except ValueError as error:
        raise UserError(f"--budget {text}: {expected}") from error
    if unit == "steps":
        if not 1 <= number <= _MOST_STEPS or number != int(number):
            raise UserError(f"--budget {text}: give a whole number of steps of at least 1")
        return Budget(steps=int(number), text=f"{int(number):,} steps")
    if not 0 < number < float("inf"):
        raise UserError(f"--budget {text}: give a positive number")
    if unit == "flops":
        return Budget(operations=number, text=f"{number:g} FLOP")
    minutes = number * {"s": 1 / 60, "m": 1.0, "h": 60.0}[unit]
    if minutes == float("inf"):
        raise UserError(f"--budget {text}: give a shorter time")
    return Budget(minutes=minutes, text=f"{minutes:g} minutes")


def steps_of(run: Run, recipe: Recipe, operations: float) -> int:
    """The number of steps that take about this many floating-point operations.

    The operations of one batch are counted and divided by its weight; the weight of a step is the
    mean over the first batches. So the schedule of the learning rate ends with the budget, and a
    run can be resumed exactly.

    Args:
        run: a prepared run.
        recipe: its recipe.
        operations: the budget.

    Raises:
        UserError: a single step takes more.
    """
    kind, settings = kind_of(recipe), recipe.training
    device = choose_device(settings.device)
    model = kind.build_model(run).to(device)
    task = kind.build_task(run, model, settings, device, "float32")
    taken = islice(task.batches(Position(recipe.seed, 0, 0), SINGLE), _MEASURED)
    batches = [batch for _, batch in taken]
    model.train()
    parameters = list(model.parameters())
    strategy = SingleProcess(task, parameters, device, torch.amp.GradScaler(enabled=False))
    counted = batches[0].to(device)
    each = strategy.operations(counted) / counted.weight
    per_step = settings.accumulation_steps * settings.virtual_shards
    weight = per_step * sum(one.weight for one in batches) / len(batches)
    steps = operations / (each * weight)
    if steps < 1:
        raise UserError(
            f"--budget {operations:g}flops is less than one step of {run.path}, which takes about "
            f"{each * weight:.2g} floating-point operations; give a larger budget"
        )
    return min(_MOST_STEPS, int(steps + 0.5))


def with_validations(recipe: Recipe, tables: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``tables`` with enough validations for a learning curve, if the training is shorter."""
    steps, every = recipe.training.max_steps, recipe.training.validate_every
    if 2 * steps >= _VALIDATIONS * every:
        return dict(tables)
    return with_setting(tables, "training.validate_every", max(1, steps // _VALIDATIONS), where)
