"""Optuna as pure functions: propose the next trial, or decide whether to prune one.

The Optuna study is rebuilt from ``tuning.json`` at each call. There is no second store that could
disagree with it after a crash, and a resumed search draws the same settings as an uninterrupted
one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from heedful.basics.errors import UserError
from heedful.runs.search_space import SearchSpace
from heedful.training.tuning_record import Trial

try:
    import optuna
except ImportError as error:
    raise UserError("heedful tune needs Optuna: pip install 'heedful[tune]'") from error

RANDOM_TRIALS = 2
"""Random trials, after the recipe itself, before the sampler uses results."""
GRACE = 3
"""No trial is pruned before this part (a third) of the first trial's steps."""

optuna.logging.set_verbosity(optuna.logging.ERROR)
_STATES = {
    "complete": optuna.trial.TrialState.COMPLETE,
    "pruned": optuna.trial.TrialState.PRUNED,
    # Optuna ignores failed trials; a pruned trial without figures counts as the worst.
    "diverged": optuna.trial.TrialState.PRUNED,
    "failed": optuna.trial.TrialState.PRUNED,
}


def propose(
    space: Mapping[str, SearchSpace],
    trials: Sequence[Trial],
    *,
    higher: bool,
    seed: int,
    attempt: int,
) -> dict[str, Any]:
    """Settings for the next trial, by the tree-structured Parzen estimator (Bergstra et al. 2011).

    Args:
        space: the search space.
        trials: the trials that have ended.
        higher: whether a higher figure is better.
        seed: of the search.
        attempt: 0, or higher after proposals that were invalid.
    """
    # One random stream per trial: a proposal depends on the record, not on when the search resumed.
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=1 + RANDOM_TRIALS, seed=_seed(seed, len(trials), attempt)
    )
    study = _study(space, trials, higher, sampler=sampler)
    drawn = study.ask({key: _distribution(searched) for key, searched in space.items()})
    return {key: _from_optuna(space[key], value) for key, value in drawn.params.items()}


def is_hopeless(
    validations: Sequence[tuple[int, float]], trials: Sequence[Trial], *, higher: bool
) -> bool:
    """Whether to prune a trial: its best figure is below the median of others at the same step.
    The median stopping rule (Golovin et al. 2017) over the complete trials, applied after a third
    of the first trial's steps.
    the first trial's steps.
    """
    whole = [trial for trial in trials if trial.state == "complete"]
    if not whole:
        return False
    pruner = optuna.pruners.MedianPruner(
        n_startup_trials=1, n_warmup_steps=math.ceil(whole[0].step / GRACE)
    )
    study = _study({}, whole, higher, pruner=pruner)
    trial = study.ask()
    for step, value in validations:
        trial.report(value, step)
    return trial.should_prune()


def _study(
    space: Mapping[str, SearchSpace], trials: Sequence[Trial], higher: bool, **parts: Any
) -> optuna.Study:
    study = optuna.create_study(direction="maximize" if higher else "minimize", **parts)
    for trial in trials:
        # The recipe itself may lie outside the ranges, where the sampler cannot use it.
        inside = {key: trial.settings.get(key) for key in space}
        inside = {key: value for key, value in inside.items() if space[key].has(value)}
        study.add_trial(
            optuna.trial.create_trial(
                state=_STATES[trial.state],
                value=trial.value if trial.state == "complete" else None,
                params={key: _to_optuna(space[key], value) for key, value in inside.items()},
                distributions={key: _distribution(space[key]) for key in inside},
                intermediate_values=dict(trial.validations),
            )
        )
    return study


def _distribution(searched: SearchSpace) -> Any:
    distributions = optuna.distributions
    if searched.choices is not None:
        return distributions.CategoricalDistribution(list(range(len(searched.choices))))
    low, high = searched.low, searched.high
    assert low is not None
    assert high is not None
    if searched.whole:
        step = int(searched.step or 1)
        high = low + (high - low) // step * step
        return distributions.IntDistribution(int(low), int(high), log=searched.log, step=step)
    if searched.step is not None:
        high = low + math.floor((high - low) / searched.step + 1e-9) * searched.step
    return distributions.FloatDistribution(
        float(low), float(high), log=searched.log, step=searched.step
    )


def _to_optuna(searched: SearchSpace, value: Any) -> Any:
    """A value for the sampler: choices by index, so that they may be of any type."""
    return value if searched.choices is None else searched.choices.index(value)


def _from_optuna(searched: SearchSpace, value: Any) -> Any:
    if searched.choices is not None:
        return searched.choices[value]
    if not isinstance(value, float):
        return value
    assert searched.low is not None
    assert searched.high is not None
    # Three significant digits are precise enough, and readable.
    return min(max(float(f"{value:.3g}"), float(searched.low)), float(searched.high))


def _seed(seed: int, trial: int, attempt: int) -> int:
    return (seed * 1_000_003 + trial * 1_009 + attempt) % 2**32
