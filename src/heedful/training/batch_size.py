"""Measures the largest batch that fits in memory, by trial steps with growing batches."""

import contextlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

from heedful.basics.errors import UserError
from heedful.basics.memory import readable_size
from heedful.data.positions import Position, Rank
from heedful.runs.settings import LoopSettings, batches_of
from heedful.training.flat_gradients import PIECE
from heedful.training.parameter_groups import groups_of
from heedful.training.processes import Processes
from heedful.training.protocol import Task
from heedful.training.strategies import MakeStrategy
from heedful.training.trial import trial

_FIRST = 1024
"""Tokens of the first trial; each further one has twice as many."""
_BATCHES = 4
"""Batches of a trial."""
_SHARE = {"cpu": 0.6, "cuda": 0.85}
"""The share of the free memory that training may use: later batches may have longer rows, and other
programs on a CPU may grow."""


class Memory(NamedTuple):
    """Bytes of memory."""

    used: int
    """The most that was used since the last reset."""
    free: int
    """What this process could use in addition."""


class _Need(NamedTuple):
    """What a trial needed in a process; the largest is that of the process with the least room."""

    share: float
    """Of the budget; infinite if the trial did not fit on a card."""
    used: float
    """Bytes."""
    budget: float
    """Bytes that training may use."""


def fit_batch(
    settings: LoopSettings,
    build: Callable[[LoopSettings], Task],
    make: MakeStrategy,
    device: torch.device,
    seed: int,
    notify: Callable[[str], None],
    *,
    processes: Processes,
) -> LoopSettings:
    """The settings with the largest ``batch_tokens`` that fits, and batches that make up a step.

    A trial computes the gradients of the first batches of the training data. It changes neither
    weights nor random generators. Another size is tried only if twice the memory of the last one is
    free. The result depends on the memory that is free at this moment, so that a run stores it.

    Several processes measure at the same time, each the shards that it will compute. All get the
    size that fits in every process. Processes on the CPU of a machine share its free memory evenly.

    Args:
        settings: with ``global_batch_tokens``; ``batch_tokens`` is the upper limit.
        build: builds the training task for settings.
        make: makes the strategy that computes the shards of this process, without the others.
        device: the device of the model.
        seed: of the run.
        notify: called with the result.
        processes: the processes that train together; all call this function.

    Raises:
        UserError: the memory of the device is not known, or the smallest batch does not fit.
    """
    whole, shards = settings.global_batch_tokens, settings.virtual_shards
    assert whole is not None, "batch_from_memory needs global_batch_tokens"
    reset_peak(device)
    before = memory_of(device)
    if before is None:
        raise UserError(
            f"training.batch_from_memory: the free memory of {device.type} is not known here; set "
            "training.batch_tokens instead"
        )
    processes.barrier()  # no process starts a trial before all have read what is free
    sharing = processes.local_count if device.type == "cpu" else 1
    budget = max(1.0, _SHARE[device.type] * before.free / sharing)

    def needed(size: int) -> _Need:
        tried = settings.model_copy(update={"batch_tokens": size})
        took = _trial(tried, build, make, device, seed, processes.rank)
        used = float("inf") if took is None else max(0.0, took - before.used)
        return max(processes.gather(_Need(used / budget, used, budget)))

    fitting, need = _largest(min(settings.batch_tokens, -(-whole // shards)), needed)
    # As few batches as fit, of equal size, so that the step has the tokens that were asked for.
    count = -(-whole // (fitting * shards))
    even = -(-whole // (count * shards))
    count = batches_of(whole, even * shards)
    several = processes.rank.count > 1
    notify(
        f"batches of {even:,} tokens, {count * shards:,} per step of {whole:,}: trial steps with "
        f"{fitting:,} tokens used {readable_size(int(need.used))} of "
        f"{readable_size(int(need.budget))}"
        + (" in the process with the least memory left" if several else "")
    )
    return settings.model_copy(update={"batch_tokens": even, "accumulation_steps": count})


def _largest(most: int, needed: Callable[[int], _Need]) -> tuple[int, _Need]:
    """The largest size of the trials that fits, and what it needs.

    Args:
        most: the largest size that is of use.
        needed: makes the trial of a size.

    Raises:
        UserError: the first size does not fit.
    """
    size = min(_FIRST, most)
    need = needed(size)
    if need.share > 1:
        raise UserError(
            f"training.batch_from_memory: a batch of {size:,} tokens needs more than "
            f"{readable_size(int(need.budget))} of memory; use a smaller model or shorter rows"
        )
    while size < most and 2 * need.share <= 1:
        larger = min(2 * size, most)
        found = needed(larger)
        if found.share > 1:
            break
        size, need = larger, found
    return size, need


def _trial(
    settings: LoopSettings,
    build: Callable[[LoopSettings], Task],
    make: MakeStrategy,
    device: torch.device,
    seed: int,
    rank: Rank,
) -> int | None:
    """The most bytes that training uses with these settings; None if they do not fit on a card."""
    task = build(settings)
    parameters = [p for group in groups_of(task.model, settings) for p in group.parameters]
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    strategy = make(task, parameters, device, scaler)
    training = task.model.training
    task.model.train()
    try:
        with trial(task):
            each = strategy.rank.each
            batches = task.batches(Position(seed, 0, 0), Rank(rank.index, rank.count, each))
            for _ in range(max(1, _BATCHES // each)):
                group = [batch for _, batch in islice(batches, each)]
                strategy.gradients(1, group, sum(batch.weight for batch in group))
    except torch.cuda.OutOfMemoryError:
        return None
    finally:
        task.model.train(training)
        for parameter in parameters:
            parameter.grad = None
        found = memory_of(device)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    weights = sum(p.numel() * p.element_size() for p in parameters)
    optimiser = {"adam": 2, "adamw": 2}.get(settings.optimiser, 0) * weights
    exchange = 0
    if rank.count > 1:  # the buffers in which processes exchange gradients
        exchange = min(8 * PIECE, 2 * weights) if settings.exact_reduction else weights
    return None if found is None else found.used + optimiser + exchange


def memory_of(device: torch.device) -> Memory | None:
    """The memory of a device, as this process sees it; None if unknown."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return Memory(torch.cuda.max_memory_allocated(device), free + kept)
    if device.type != "cpu":
        return None
    try:
        status = _sizes(Path("/proc/self/status"))
        free = _sizes(Path("/proc/meminfo"))["MemAvailable"]
        used = status["VmHWM"]
    except (OSError, KeyError):  # not Linux
        return None
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        taken = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        free = min(free, max(0, limit - taken))
    return Memory(used, free)


def reset_peak(device: torch.device) -> None:
    """Let the most that is used start from what is used now, where the system can do that."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif device.type == "cpu":
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _sizes(path: Path) -> dict[str, int]:
    """The sizes of a file of Linux with lines such as ``VmHWM: 12 kB``, in bytes."""
    lines = (line.partition(":") for line in path.read_text(encoding="utf-8").splitlines())
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in lines if rest.endswith(" kB")}
