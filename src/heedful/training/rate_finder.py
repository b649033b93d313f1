"""Finds a learning rate: training with a rate that grows from step to step, until it diverges.

Smith 2017, "Cyclical Learning Rates for Training Neural Networks", section 3.3 (learning-rate range
test). The rate grows by the same factor at each step, so that it covers several orders of
magnitude.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from heedful.basics.device import check_precision, choose_device
from heedful.basics.errors import UserError
from heedful.basics.thread_contention import with_threads
from heedful.data.positions import Position
from heedful.layers.max_norm import constrained_modules
from heedful.runs.recipe import check_recipe
from heedful.runs.registry import kind_of
from heedful.runs.run import Run
from heedful.runs.settings import LoopSettings, Recipe
from heedful.training.building import model_of, training_task
from heedful.training.optimisers import build_optimiser
from heedful.training.parameter_groups import groups_of
from heedful.training.processes import join
from heedful.training.protocol import Task
from heedful.training.report import Report
from heedful.training.strategy_choice import strategy_of
from heedful.training.train import prepare
from heedful.training.warm_start import with_start

FEWEST_STEPS = 20
_SMOOTHING = 0.9
_DIVERGED = 4.0
"""A smoothed loss of this many times the lowest one ends the test."""


@dataclass(frozen=True)
class RangeTest:
    """The result of a range test.

    Attributes:
        rates: the learning rate of each step.
        losses: the mean loss of the step, before its update.
        smoothed: the exponential moving average of the losses, corrected for its start.
        diverged: whether the loss diverged before the highest rate was reached.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    diverged: bool

    @property
    def lowest(self) -> int:
        """The step with the lowest smoothed loss."""
        return int(np.argmin(self.smoothed))

    @property
    def suggestion(self) -> float | None:
        """The rate where the smoothed loss falls fastest, over the logarithm of the rate; None if
        it never falls."""
        until = self.lowest + 1
        if until < 3:
            return None
        slopes = np.gradient(self.smoothed[:until])
        return self.rates[int(np.argmin(slopes))] if slopes.min() < 0 else None

    def as_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "suggestion": self.suggestion,
            "lowest_loss": self.smoothed[self.lowest],
            "rate_of_lowest_loss": self.rates[self.lowest],
            "diverged": self.diverged,
            "rates": self.rates,
            "losses": self.losses,
            "smoothed": self.smoothed,
        }


def find_learning_rate(
    tables: Mapping[str, Any],
    where: str,
    *,
    data: str | Path | None = None,
    start_from: str | Path | None = None,
    lowest: float = 1e-6,
    highest: float = 1.0,
    steps: int = 100,
) -> RangeTest:
    """Train a recipe from its initial weights with a growing learning rate, in a temporary run.

    Args:
        tables: the tables of the recipe.
        where: its origin, for messages.
        data: the base folder of relative data paths.
        start_from: a run whose weights and vocabulary are the initial ones.
        lowest: the rate of the first step.
        highest: the rate of the last step.
        steps: number of steps, at least 20. Each has the batches of the recipe.

    Raises:
        UserError: the recipe, its data or the range are invalid.
    """
    if not 0 < lowest < highest < math.inf:
        raise UserError(f"--lowest {lowest:g} must be above 0 and below --highest {highest:g}")
    if steps < FEWEST_STEPS:
        raise UserError(f"--steps {steps}: give at least {FEWEST_STEPS}")
    start = None if start_from is None else Path(start_from)
    recipe = check_recipe(with_start(tables, start), where).of_a_run()
    device = choose_device(recipe.training.device)
    precision = check_precision(recipe.training.precision, device)
    threads = recipe.training.threads or torch.get_num_threads()
    rates = (lowest * (highest / lowest) ** (step / (steps - 1)) for step in range(steps))
    with (
        tempfile.TemporaryDirectory(prefix="heedful-") as folder,
        with_threads(threads),
        Report(steps) as report,
    ):
        run = prepare(recipe, Path(folder) / "run", data=data, start_from=start_from)
        task = _task_of(run, recipe, device, precision, report)
        return _test(task, recipe, device, precision, rates, report.step)


def _task_of(
    run: Run, recipe: Recipe, device: torch.device, precision: str, report: Report
) -> Task:
    model, _ = model_of(run, recipe.training, device)
    task, _ = training_task(run, model, recipe, device, precision, report, join())
    kind_of(recipe).load_start(run, model)
    return task


def _test(
    task: Task,
    recipe: Recipe,
    device: torch.device,
    precision: str,
    rates: Iterator[float],
    advance: Callable[[int, float], None],
) -> RangeTest:
    """Take steps with ``rates`` until the loss diverges."""
    found = RangeTest([], [], [], diverged=False)
    step = _Steps(task, recipe.training, device, precision, recipe.seed)
    began, average, best = time.perf_counter(), 0.0, math.inf
    for number, rate in enumerate(rates, start=1):
        loss = step(number, rate)
        if not math.isfinite(loss):
            return RangeTest(found.rates, found.losses, found.smoothed, diverged=True)
        average = _SMOOTHING * average + (1 - _SMOOTHING) * loss
        smoothed = average / (1 - _SMOOTHING**number)
        for values, value in (
            (found.rates, rate),
            (found.losses, loss),
            (found.smoothed, smoothed),
        ):
            values.append(value)
        advance(number, time.perf_counter() - began)
        best = min(best, smoothed)
        if smoothed > best + (_DIVERGED - 1) * abs(best):
            return RangeTest(found.rates, found.losses, found.smoothed, diverged=True)
    return found


class _Steps:
    """Takes training steps with given learning rates, as the loop does."""

    def __init__(
        self, task: Task, settings: LoopSettings, device: torch.device, precision: str, seed: int
    ) -> None:
        self.settings, self.groups = settings, groups_of(task.model, settings)
        parameters = [p for group in self.groups for p in group.parameters]
        self.optimiser = build_optimiser(self.groups, settings)
        self.constrained = constrained_modules(task.model)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
        make = strategy_of(task, settings, device, precision, seed=seed, processes=join())
        self.strategy = make(task, parameters, device, self.scaler)
        self.batches = task.batches(Position(seed, 0, 0), self.strategy.rank)
        task.model.train()

    def __call__(self, number: int, rate: float) -> float:
        """Take a step; returns its mean loss before the update."""
        count = self.settings.accumulation_steps * self.strategy.rank.each
        batches = [next(self.batches)[1] for _ in range(count)]
        weight = sum(batch.weight for batch in batches)
        results = self.strategy.gradients(number, batches, weight)
        for own, group in zip(self.optimiser.param_groups, self.groups, strict=True):
            own["lr"] = rate * group.scale
            if number < group.from_step:
                for parameter in group.parameters:
                    parameter.grad = None
        self.scaler.unscale_(self.optimiser)
        limit = self.settings.clip_norm
        self.strategy.clip(math.inf if limit is None else limit)
        self.scaler.step(self.optimiser)
        for module in self.constrained:
            module.constrain()
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        return float(sum(float(result.loss.total) for result in results) / weight)
