"""``heedful tune``: search for the settings of a recipe with the best validation figures.

Every trial is an ordinary run of :func:`heedful.training.train`. ``tuning.json`` is written before
and after each trial, so that the same call resumes an interrupted search.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import cannot_write, remove_leftovers, write_text
from heedful.basics.locking import locked
from heedful.basics.notices import notice
from heedful.basics.settings import current_name
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, tables_of, with_setting, without_searches, write_toml
from heedful.runs.registry import kind_of
from heedful.runs.run import Run
from heedful.runs.search_space import SearchSpace
from heedful.runs.settings import Recipe
from heedful.training.loop import DivergedError
from heedful.training.optuna_proposals import is_hopeless, propose
from heedful.training.resuming import flat
from heedful.training.run_sets import (
    FILES,
    HARMLESS,
    compared_settings,
    report_early_end,
    require_empty,
    require_same_settings,
    share_with,
)
from heedful.training.train import train
from heedful.training.tuning_record import (
    RECORD,
    Trial,
    Tuning,
    read_figures,
    read_tuning,
    write_tuning,
)
from heedful.training.warm_start import start_hash, with_start

BEST = "best.toml"
_ATTEMPTS = 100


def tune(
    recipe: str | Path | Recipe | Mapping[str, Any],
    out: str | Path,
    *,
    trials: int = 4,
    minutes: float | None = None,
    seeds: int = 0,
    data: str | Path | None = None,
    pruning: bool = True,
    start_from: str | Path | None = None,
) -> bool:
    """Search for the best settings of a recipe, or resume a search; the test set is never used.

    Args:
        recipe: a TOML file, a recipe object, or its tables; its ``[tune]`` is the search space.
        out: the search's folder: runs ``trial-00`` (the recipe itself), ``trial-01``, …,
            ``tuning.json`` and, at the end, ``best.toml``.
        trials: number of runs, the recipe itself included.
        minutes: maximum training minutes per trial; the recipe's own limit by default.
        seeds: number of additional seeds to train the winner with.
        data: the base folder of relative data paths.
        pruning: whether to end trials that are worse than the median at the same step.
        start_from: a run whose weights and vocabulary initialise each trial.

    Returns:
        True when the search is complete; False if it was interrupted (repeat the call to resume).

    Raises:
        UserError: the recipe, the search space or the data are invalid, or the search in ``out``
            was started with other settings.
    """
    if trials < 1 or seeds < 0:
        raise UserError(f"{trials} trials and {seeds} further seeds: give at least 1 and 0")
    search = _Search(recipe, Path(out), minutes, pruning, data, start_from)
    try:
        search.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(search.folder, error) from error
    with locked(search.folder, doing="searched"):
        remove_leftovers(search.folder)
        search.open()
        return search.run(trials) and search.finish(seeds)


def default_space(recipe: Recipe) -> dict[str, SearchSpace]:
    """The search space of recipes without ``[tune]``: learning rate and dropout.

    The learning rate ranges from a third to three times the recipe's; dropout ±0.1.
    """
    rate = recipe.training.learning_rate
    space = {"training.learning_rate": SearchSpace(low=rate / 3, high=rate * 3, log=True)}
    key, model = "model.dropout", recipe.as_tables().get("model", {})
    if "dropout" not in model and "language_model" in model:
        key, model = "model.language_model.dropout", model["language_model"]
    dropout = model.get("dropout")
    if dropout is not None:
        # Steps are counted from the recipe's own value, so that it is one of the values.
        below = min(2, math.floor(dropout / 0.05 + 1e-6))
        above = max(0, min(2, math.floor((0.9 - dropout) / 0.05 + 1e-6)))
        low, high = round(dropout - 0.05 * below, 4), round(dropout + 0.05 * above, 4)
        space[key] = SearchSpace(low=low, high=high, step=0.05)
    return space


class _Search:
    """One search and its folder."""

    def __init__(
        self,
        recipe: str | Path | Recipe | Mapping[str, Any],
        folder: Path,
        minutes: float | None,
        pruning: bool,
        data: str | Path | None,
        start_from: str | Path | None,
    ) -> None:
        self.folder, self.data, self.pruning = folder, data, pruning
        self.start = None if start_from is None else open_run(start_from).path
        tables, self.where = tables_of(recipe)
        tables = with_start(tables, self.start)
        if minutes is not None:
            tables = with_setting(tables, "training.max_minutes", minutes, "--minutes")
        self.recipe = check_recipe(tables, self.where)
        self.space = dict(self.recipe.tune) or default_space(self.recipe)
        self.tables = without_searches(tables)
        if not self.recipe.is_validated:
            raise UserError(
                f"{self.where}: a search needs validation data (set data.validation or "
                "data.validation_share)"
            )
        self.tuning = Tuning({}, "", True)

    def open(self) -> None:
        """Resume the search in the folder, or start one."""
        compared_by = self.recipe.training.choose_by
        begun_with: dict[str, Any] = {
            "recipe": compared_settings(self.recipe),
            "space": {key: searched.as_tables() for key, searched in self.space.items()},
            "pruning": self.pruning,
            **({} if self.start is None else {"weights": start_hash(self.start)}),
        }
        known = read_tuning(self.folder)
        if known is not None:
            self._rename(known)
            before = {
                **known.begun_with,
                "recipe": self._with_later_settings(known.begun_with["recipe"]),
            }
            _allow_unused_limits(known, before["recipe"], begun_with["recipe"])
            require_same_settings(self.folder, before, begun_with, "a search")
            known.begun_with = begun_with
            self.tuning = known
            return
        require_empty(self.folder, "a search")
        self.tuning = Tuning(
            begun_with, compared_by, higher=not kind_of(self.recipe).falls(self.recipe, compared_by)
        )

    def _rename(self, known: Tuning) -> None:
        """Rename settings that an earlier version searched under old names."""

        def now(settings: dict[str, Any]) -> dict[str, Any]:
            return {current_name(self.recipe, key): value for key, value in settings.items()}

        known.begun_with["space"] = now(known.begun_with["space"])
        for trial in known.trials + known.further:
            trial.settings = now(trial.settings)

    def _with_later_settings(self, known: dict[str, Any]) -> dict[str, Any]:
        """The settings of an existing search, with those that later versions added."""
        tables: Mapping[str, Any] = {}
        own = flat(self.recipe.as_tables())
        free = {k: v for k, v in own.items() if k in HARMLESS or k.endswith(FILES)}
        for key, value in {**free, **known}.items():
            tables = with_setting(tables, key, value, str(self.folder))
        return compared_settings(check_recipe(tables, str(self.folder / RECORD), written=True))

    def run(self, trials: int) -> bool:
        """Train until there are ``trials`` trials; returns False if interrupted."""
        tuning = self.tuning
        # Trials that failed are tried again: the reason may be gone.
        failed = () if tuning.further else ("failed",)
        unended = [one for one in tuning.trials if not one.ended or one.state in failed]
        if len(tuning.trials) < trials and tuning.further:
            raise UserError(
                f"{self.folder}: the best of {len(tuning.trials)} trials was trained with "
                "further seeds already; for more trials use another --out"
            )
        if not self.recipe.tune and (unended or len(tuning.trials) < trials):
            ranges = ", ".join(f"{k} {s.low:.3g} to {s.high:.3g}" for k, s in self.space.items())
            notice(f"{self.where} has no [tune]: searching {ranges}")
        for trial in unended:
            if not self._train(trial, f"trial {tuning.trials.index(trial) + 1} of {trials}"):
                return False
        while len(tuning.trials) < trials:
            settings = self._draw()
            if settings is None:
                notice(f"all {len(tuning.trials)} points of [tune] have been tried")
                break
            number = len(tuning.trials)
            trial = Trial(f"trial-{number:02d}", self.recipe.seed, settings)
            tuning.trials.append(trial)
            if not self._train(trial, f"trial {number + 1} of {trials}"):
                return False
        return True

    def finish(self, seeds: int) -> bool:
        """Write the best recipe and train it with further seeds; returns False if interrupted."""
        tuning = self.tuning
        winner = tuning.winner
        if winner is None:
            raise UserError(
                f"{self.folder}: no trial was completed; lower the learning rates of [tune]"
            )
        best = tuning.trials[winner]
        if not tuning.parameters:
            model = kind_of(self.recipe).build_model(open_run(self.folder / best.folder))
            tuning.parameters = sum(p.numel() for p in model.parameters())
            write_tuning(self.folder, tuning)
        text = write_toml(self._recipe(best)).partition("\n")[2]
        about = f"# The winner of {len(tuning.trials)} trials; heedful tune wrote it."
        write_text(self.folder / BEST, f"{about}\n{text}")
        for number in range(1, seeds + 1):
            seed = self.recipe.seed + number
            if number > len(tuning.further):
                tuning.further.append(Trial(f"seed-{seed}", seed, best.settings))
            trial = tuning.further[number - 1]
            if not trial.ended and not self._train(trial, f"further seed {number} of {seeds}"):
                return False
        return True

    def _draw(self) -> dict[str, Any] | None:
        """Settings that have not been tried; None if none are left."""
        tried = [trial.settings for trial in self.tuning.trials]
        if not tried:
            return self._own()
        misfit: UserError | None = None
        for attempt in range(_ATTEMPTS):
            settings = propose(
                self.space,
                self.tuning.trials,
                higher=self.tuning.higher,
                seed=self.recipe.seed,
                attempt=attempt,
            )
            if settings in tried:
                continue
            try:
                self._recipe(Trial("", self.recipe.seed, settings))
            except UserError as error:  # settings that contradict each other
                misfit = error
                continue
            return settings
        if misfit is not None:
            raise UserError(f"none of {_ATTEMPTS} draws was a valid recipe; the last: {misfit}")
        return None

    def _own(self) -> dict[str, Any]:
        """The recipe's own values of the searched settings; unset ones are left out."""
        values = flat(self.recipe.as_tables()) | flat(self.tables)
        return {key: values[key] for key in self.space if key in values}

    def _recipe(self, trial: Trial) -> Recipe:
        tables = self.tables | {"seed": trial.seed}
        for key, value in trial.settings.items():
            tables = with_setting(tables, key, value, self.where)
        return check_recipe(tables, f"{self.where}, [tune]")

    def _train(self, trial: Trial, name: str) -> bool:
        """Train one run to its end; returns False if interrupted."""
        trial.state = "running"
        write_tuning(self.folder, self.tuning)
        folder = self.folder / trial.folder
        listed = ", ".join(f"{key} {value}" for key, value in trial.settings.items())
        notice(f"{name}: {folder}, {listed}, seed {trial.seed}")
        recipe = self._recipe(trial)
        share_with(folder, recipe, [self.folder / each.folder for each in self.tuning.trials])
        searched = trial in self.tuning.trials and self.pruning

        def stop(step: int, figures: dict[str, float]) -> str | None:
            if not searched or not self._is_hopeless(open_run(folder)):
                return None
            return f"{self.tuning.compared_by} is worse than the median of the trials at this step"

        try:
            if not train(recipe, folder, data=self.data, start_from=self.start, stop=stop):
                return False
        except DivergedError as error:
            notice(f"{name} is excluded from the search: {error}")
            trial.state = "diverged"
        except UserError as error:
            if trial not in self.tuning.trials[1:]:
                raise
            notice(f"{name} failed and is excluded from the search: {error}")
            trial.state = "failed"
            write_tuning(self.folder, self.tuning)
            return True
        self._record_result(trial, open_run(folder))
        write_tuning(self.folder, self.tuning)
        return True

    def _is_hopeless(self, run: Run) -> bool:
        validations, _ = read_figures(run, self.tuning.compared_by)
        ended = [trial for trial in self.tuning.trials if trial.ended]
        return is_hopeless(validations, ended, higher=self.tuning.higher)

    def _record_result(self, trial: Trial, run: Run) -> None:
        """Record the result of a trial's run."""
        trial.validations, last = read_figures(run, self.tuning.compared_by)
        trial.step = int(last.get("step", 0))
        trial.minutes, trial.operations = last.get("seconds", 0) / 60, last.get("operations", 0)
        result = run.result
        if result is None:
            return
        trial.chosen, trial.validation = result["chosen"], result["validation"]
        trial.value = trial.validation[self.tuning.compared_by]
        if result.get("given_up"):
            trial.state = "pruned"
            return
        trial.state = "complete"
        report_early_end(run, trial.step)


def _allow_unused_limits(known: Tuning, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Allow a different time limit if no trial has reached the old or the new one."""
    key = "training.max_minutes"
    limits = [limit for limit in (before.get(key), now.get(key)) if limit is not None]
    ended = [trial for trial in known.trials + known.further if trial.ended]
    if ended and all(trial.minutes < limit for trial in ended for limit in limits):
        before.pop(key, None)
        before |= {key: now[key]} if key in now else {}
