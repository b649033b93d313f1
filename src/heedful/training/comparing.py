"""``heedful compare``: train variants of a recipe with equal budgets and several seeds.

Every training is an ordinary run of :func:`heedful.training.train`. ``comparison.json`` is written
before and after each, so that the same call resumes an interrupted comparison.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import cannot_write, remove_leftovers
from heedful.basics.locking import locked
from heedful.basics.notices import notice
from heedful.runs.checkpoints import whole_checkpoints
from heedful.runs.manifest import write_recipe
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, with_setting, write_toml
from heedful.runs.registry import kind_of
from heedful.runs.search_space import NOT_COMPARABLE, keys_within
from heedful.runs.settings import Recipe
from heedful.training.budget import NO_BUDGET, Budget, steps_of, with_validations
from heedful.training.comparison_record import (
    Comparison,
    Refused,
    Training,
    read_comparison,
    write_comparison,
)
from heedful.training.parallel_trainings import train_in_processes
from heedful.training.report import duration
from heedful.training.resuming import flat
from heedful.training.run_sets import (
    compared_settings,
    report_early_end,
    require_empty,
    require_same_settings,
    share_with,
)
from heedful.training.train import prepare, train
from heedful.training.variants import Settings, Variant, combine, find_variant, refuse_fixed
from heedful.training.warm_start import start_hash


@dataclass(frozen=True)
class Plan:
    """What is compared.

    Attributes:
        tables: the tables of the recipe.
        bases: those of the recipe over another base, by its name, if ``base`` is varied.
        where: its origin, for messages.
        groups: alternatives of settings (:func:`~heedful.training.variants.read_vary`); every
            combination of one of each group is a variant.
        seeds: number of seeds, from the recipe's own on.
        budget: the limit of each training.
        baseline: name of the variant that others are compared with; the first one if None.
        data: the base folder of relative data paths.
        start_from: a run whose weights and vocabulary initialise each training; its settings are
            in ``tables``.
    """

    tables: Mapping[str, Any]
    where: str
    groups: Sequence[Sequence[Settings]]
    seeds: int = 1
    budget: Budget = NO_BUDGET
    baseline: str | None = None
    data: Path | None = None
    start_from: Path | None = None
    bases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def recipe(self, settings: Settings, seed: int | None = None) -> Recipe:
        """The recipe of a variant.

        Raises:
            UserError: the settings are invalid or incompatible.
        """
        base = settings.get("base")
        own = self.tables if base is None else self.bases[base]
        tables = self.budget.apply(own, self.where)
        for key, value in settings.items():
            if key != "base":
                tables = with_setting(tables, key, value, self.where)
        if seed is not None:
            tables = tables | {"seed": seed}
        recipe = check_recipe(tables, self.where)
        return check_recipe(with_validations(recipe, tables, self.where), self.where)

    def checked(self) -> tuple[list[Variant], list[Refused]]:
        """The valid variants, and the refused ones with the reason.

        Raises:
            UserError: a setting cannot be varied, there is nothing to compare, or the recipe has
                no validation data.
        """
        limited = self.budget.steps is not None or self.budget.operations is not None
        given = [item for group in self.groups for each in group for item in each.items()]
        for key, value in given:
            refuse_fixed(key, [value], self.where)
            if limited and "training.max_steps" in keys_within(key, [value]):
                raise UserError(f"{self.where}: training.max_steps is varied: leave out --budget")
        if self.seeds < 1:
            raise UserError(f"--seeds {self.seeds}: the minimum is 1")
        variants, refused = [], []
        first: Recipe | None = None
        for variant in combine(self.groups):
            try:
                recipe = self.recipe(variant.settings)
                kind_of(recipe).require_usable(recipe)
            except UserError as error:
                reason = str(error).removeprefix(f"{self.where}: ")
                refused.append(Refused(variant.name, reason))
                continue
            if not recipe.is_validated:
                raise UserError(
                    f"{self.where}: a comparison needs validation data (set data.validation or "
                    "data.validation_share)"
                )
            first = recipe if first is None else first
            _require_comparable(variant, recipe, first, self.where)
            variants.append(variant)
        return variants, refused

    def baseline_of(self, variants: Sequence[Variant]) -> Variant:
        """The variant that others are compared with.

        Raises:
            UserError: no variant has the name :attr:`baseline`.
        """
        if self.baseline is None:
            return variants[0]
        return find_variant(variants, self.baseline, "--baseline")


def _require_comparable(variant: Variant, recipe: Recipe, first: Recipe, where: str) -> None:
    """Raise UserError if the recipe of another base measures something else than the first one."""
    one, other = ({"task": each.task, **flat(each.as_tables())} for each in (first, recipe))
    for key in sorted(NOT_COMPARABLE | {"task"}):
        if "base" in variant.settings and one.get(key) != other.get(key):
            raise UserError(
                f"{where}: {variant.name} has another {key} than the first variant: the figures "
                "would not be comparable"
            )


def check_refused(variants: Sequence[Variant], refused: Sequence[Refused], *, skip: bool) -> None:
    """List the refused variants.

    Raises:
        UserError: there are some and ``skip`` is false, or no variant is left.
    """
    for one in refused:
        notice(f"invalid variant {one.name}: {one.reason}")
    if refused and (not skip or not variants):
        hint = "correct --vary, or leave them out with --skip-invalid"
        raise UserError(
            f"{len(refused)} of {len(variants) + len(refused)} variants are invalid (listed "
            f"above): {hint if variants else 'nothing is left to compare'}"
        )


def train_variants(plan: Plan, out: Path, *, skip_invalid: bool = False, jobs: int = 1) -> bool:
    """Train all variants with all seeds, or resume.

    Args:
        plan: what is compared.
        out: the folder: a folder for each variant with a run for each seed, ``comparison.json``.
        skip_invalid: whether to leave out invalid combinations instead of raising an error.
        jobs: number of trainings at a time, each in its own process if more than one.

    Returns:
        True when all trainings have ended; False if interrupted (repeat the call to resume).

    Raises:
        UserError: settings or data are invalid, or the comparison in ``out`` was started with
            others.
    """
    if jobs < 1:
        raise UserError(f"--jobs {jobs}: the minimum is 1")
    variants, refused = plan.checked()
    check_refused(variants, refused, skip=skip_invalid)
    plan.baseline_of(variants)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from error
    with locked(out, doing="compared"):
        remove_leftovers(out)
        return _Trainings(plan, out, variants, refused).run(jobs)


class _Trainings:
    """The trainings of a comparison and their folder."""

    def __init__(
        self, plan: Plan, folder: Path, variants: list[Variant], refused: list[Refused]
    ) -> None:
        self.plan, self.folder = plan, folder
        self.variants = {variant.name: variant for variant in variants}
        baseline = plan.baseline_of(variants)
        base = plan.recipe(baseline.settings)
        varied = {key for variant in variants for key in variant.settings}
        fixed = {
            key: value
            for key, value in compared_settings(base).items()
            if key != "seed" and not any(key == one or key.startswith(f"{one}.") for one in varied)
        }
        begun_with = {
            "recipe": fixed,
            "budget": plan.budget.text,
            **({} if plan.start_from is None else {"weights": start_hash(plan.start_from)}),
        }
        by = base.training.choose_by
        self.now = Comparison(
            begun_with=begun_with,
            recipe=plan.where,
            task=base.task,
            compared_by=by,
            higher=not kind_of(base).falls(base, by),
            budget=plan.budget.text,
            baseline=baseline.name,
            seeds=[base.seed + number for number in range(plan.seeds)],
            variants=variants,
            refused=refused,
        )
        self._open(read_comparison(folder))

    def _open(self, known: Comparison | None) -> None:
        """Take over the trainings of the comparison in the folder, or start one."""
        if known is None:
            require_empty(self.folder, "a comparison")
        else:
            require_same_settings(
                self.folder, known.begun_with, self.now.begun_with, "a comparison"
            )
            self.now.trainings = known.trainings
        there = {(each.variant, each.seed) for each in self.now.trainings}
        for seed in self.now.seeds:
            for variant in self.now.variants:
                if (variant.name, seed) not in there:
                    folder = f"{variant.folder}/seed-{seed}"
                    self.now.trainings.append(Training(variant.name, seed, folder))

    def run(self, jobs: int) -> bool:
        """Prepare all runs, then train them; returns False if interrupted."""
        self._write()
        often = self.plan.recipe(self.now.variants[0].settings).training.validate_every
        asked = self.plan.tables.get("training", {}).get("validate_every")
        if asked is not None and often != asked:
            notice(f"validating every {often:,} steps instead of {asked:,}, for learning curves")
        # Trainings that failed are tried again: the reason may be gone.
        left = [each for each in self.now.wanted if each.state != "complete"]
        for training in left:
            self._prepare(training)
        self._write()
        if jobs == 1:
            return all(self._train(training) for training in left)
        return train_in_processes(self.folder, left, self.plan.data, jobs, self._end)

    def _write(self) -> None:
        write_comparison(self.folder, self.now)

    def _recipe(self, training: Training) -> Recipe:
        recipe = self.plan.recipe(self.variants[training.variant].settings, training.seed)
        if training.max_steps is None:
            return recipe
        tables = with_setting(recipe.as_tables(), "training.max_steps", training.max_steps, "")
        whole = check_recipe(tables, self.plan.where, written=True)
        return check_recipe(with_validations(whole, tables, ""), self.plan.where, written=True)

    def _prepare(self, training: Training) -> None:
        """Prepare a run before any is trained, so that wrong data are found at once."""
        folder, recipe = self.folder / training.folder, self._recipe(training)
        others = [self.folder / each.folder for each in self.now.wanted]
        if not share_with(folder, recipe, others):
            notice(f"preparing {folder}")
            prepare(recipe, folder, data=self.plan.data, start_from=self.plan.start_from)
        run = open_run(folder)
        if self.plan.budget.operations is None or training.max_steps is not None:
            return
        if whole_checkpoints(run.checkpoint_folder):
            return
        # All seeds of a variant have the same steps, so that their curves have the same points.
        same = [e.max_steps for e in self.now.trainings if e.variant == training.variant]
        known = next((steps for steps in same if steps is not None), None)
        training.max_steps = known or steps_of(run, recipe, self.plan.budget.operations)
        write_recipe(folder, write_toml(self._recipe(training)))

    def _train(self, training: Training) -> bool:
        """Train one run in this process; returns False if interrupted."""
        place = self.now.wanted.index(training) + 1
        title = f"training {place} of {len(self.now.wanted)}"
        left = self._left()
        rest = "" if left is None else f"; about {duration(left)} left for all"
        notice(f"{title}: {training.variant}, seed {training.seed}{rest}")
        training.state = "running"
        self._write()
        began = time.monotonic()
        folder, error = self.folder / training.folder, None
        later = self._later(training)
        try:
            finished = train(self._recipe(training), folder, data=self.plan.data, later=later)
        except UserError as failure:
            finished, error = True, str(failure)
        self._end(training, time.monotonic() - began, finished=finished, error=error)
        return finished

    def _end(
        self, training: Training, seconds: float, *, finished: bool, error: str | None
    ) -> None:
        """Record the end of a training."""
        training.seconds += seconds
        if error is not None:
            notice(f"{training.variant}, seed {training.seed} failed: {error}")
        training.error = error
        if finished and error is None and self.plan.budget.minutes is not None:
            self._report_schedule(training)
        if finished:
            training.state = "complete" if error is None else "failed"
        self._write()

    def _report_schedule(self, training: Training) -> None:
        """Print a notice if a schedule that ends at the last step did not end with the time."""
        run = open_run(self.folder / training.folder)
        settings, result = run.recipe.training, run.result or {}
        report_early_end(run, result.get("step", settings.max_steps))
        if result.get("step") == settings.max_steps:
            notice(
                f"{run.path} ended at its last step, {settings.max_steps:,}, before the time; "
                "raise training.max_steps for equal times"
            )

    def _left(self) -> float | None:
        """The estimated seconds for all trainings that have not ended; None before the first."""
        return estimate(self.now)

    def _later(self, training: Training) -> Callable[[], float | None]:
        """The estimated seconds for the trainings after one."""
        return lambda: estimate(self.now, without=training)


def estimate(comparison: Comparison, without: Training | None = None) -> float | None:
    """The seconds that the trainings that have not ended will take, one after the other.

    Those of a variant take as long as its finished ones, or as the mean of all finished ones.

    Returns:
        None if no training is complete.
    """
    done = [each for each in comparison.wanted if each.state == "complete" and each.seconds]
    if not done:
        return None
    total = 0.0
    for each in comparison.wanted:
        if each.ended or each is without:
            continue
        same = [one.seconds for one in done if one.variant == each.variant]
        times = same or [one.seconds for one in done]
        total += max(0.0, sum(times) / len(times) - each.seconds)
    return total
