"""What several processes check before they train one run together."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_SHARDS
from heedful.basics.notices import notice
from heedful.data.positions import Position, Rank
from heedful.runs.manifest import FACTS
from heedful.runs.opening import open_run
from heedful.runs.run import Run
from heedful.runs.settings import Recipe, batches_of
from heedful.training.interrupting import interruptible
from heedful.training.processes import Processes
from heedful.training.protocol import Task
from heedful.training.resuming import flat

_SHARDS = "virtual_shards"


def with_shards(recipe: Recipe, folder: Path, processes: Processes) -> Recipe:
    """The recipe with ``training.virtual_shards``, if it does not set it.

    A run that is resumed keeps its number. A new run gets the number of processes.

    Args:
        recipe: the recipe.
        folder: the run's folder.
        processes: the processes that train it.

    Raises:
        UserError: the number of processes is not a valid number of virtual shards.
    """
    if _SHARDS in recipe.training.model_fields_set:
        return recipe
    if (folder / "run.json").exists():
        return _with(recipe, open_run(folder).recipe.training.virtual_shards)
    count = processes.rank.count
    if count == 1:
        return recipe
    if recipe.training.exact_reduction and count & (count - 1):
        lower = 1 << (count.bit_length() - 1)
        raise UserError(
            f"{count} processes cannot share the steps of a new run exactly, which needs 1, 2, 4, "
            f"8, … processes; start {lower} or {2 * lower} processes, or add --set "
            "training.exact_reduction=false"
        )
    if count > MOST_SHARDS:
        raise UserError(f"at most {MOST_SHARDS} processes can train a run, not {count}")
    size = f"each step takes {count} times training.batch_tokens; "
    if recipe.training.global_batch_tokens is not None:
        size = ""  # the step keeps its size
    notice(
        f"training.virtual_shards is set to {count}, the number of processes: {size}it stays the "
        "same when the run is resumed"
    )
    return _with(recipe, count)


def _with(recipe: Recipe, shards: int) -> Recipe:
    training = recipe.training.model_copy(update={_SHARDS: shards})
    if training.global_batch_tokens is not None:  # the step keeps its size
        count = batches_of(training.global_batch_tokens, training.batch_tokens * shards)
        training = training.model_copy(update={"accumulation_steps": count})
    return recipe.model_copy(update={"training": training})


def require_same_command(
    recipe: Recipe,
    folder: Path,
    data: object,
    start_from: str | Path | None,
    processes: Processes,
) -> None:
    """Raise UserError in all processes if one of them has other settings than rank 0."""
    settings = flat(recipe.model_dump(mode="json"))
    given: dict[str, Any] = {"--out": os.path.abspath(folder), "--start-from": start_from}
    if not isinstance(data, Mapping):
        given["--data"] = data
    given = {name: value and str(value) for name, value in given.items()}
    processes.require_same(settings | given)


def open_shared_run(folder: Path, processes: Processes) -> Run:
    """The run that rank 0 has prepared.

    Raises:
        UserError: this machine does not have it.
    """
    if not (folder / FACTS).exists():
        raise UserError(
            f"{folder} is not on the machine of rank {processes.rank.index}; --out must be a "
            "folder on a file system that all machines share"
        )
    return open_run(folder)


def require_same_run(run: Run, processes: Processes) -> None:
    """Raise UserError in all processes if the run of one of them has other data than rank 0's."""
    if processes.rank.count == 1:
        return
    if processes.local_rank == 0 and not processes.first:  # another machine
        run.require_unchanged("data/")
    processes.require_same(flat(run.facts), f"{run.path / FACTS}: ")


def require_examples(task: Task, seed: int, shards: int) -> None:
    """Raise UserError if the virtual shards of a step need more batches than an epoch has.

    Otherwise the same example would be used twice in a step.

    Args:
        task: the task to train.
        seed: the seed of the run.
        shards: the number of virtual shards.
    """
    if shards == 1:
        return
    after, _ = next(iter(task.batches(Position(seed), Rank(0, 1, shards))))
    if after.epoch > 1 or (after.epoch == 1 and after.index > 0):
        raise UserError(
            f"the training data have fewer batches than training.virtual_shards = {shards}, the "
            "number of batches that processes share in a step; start fewer processes, or lower "
            "training.batch_tokens"
        )


@contextmanager
def launcher_signals(processes: Processes) -> Iterator[None]:
    """Let several processes find out and report why training ends, before a signal ends them.

    If a process ends, the launcher terminates the others at once.
    """
    if processes.rank.count == 1:
        yield
        return
    with interruptible(lambda: None), processes.together():
        yield
