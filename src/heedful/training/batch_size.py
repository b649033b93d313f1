"""Measures the largest batch that fits in memory, by trial steps with growing batches."""

import contextlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

from heedful.basics.errors import UserError
from heedful.basics.memory import readable_size
from heedful.data.positions import Position
from heedful.runs.settings import LoopSettings, batches_of
from heedful.training.parameter_groups import groups_of
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


def fit_batch(
    settings: LoopSettings,
    build: Callable[[LoopSettings], Task],
    make: MakeStrategy,
    device: torch.device,
    seed: int,
    notify: Callable[[str], None],
) -> LoopSettings:
    """The settings with the largest ``batch_tokens`` that fits, and batches that make up a step.

    A trial computes the gradients of the first batches of the training data. It changes neither
    weights nor random generators. Another size is tried only if twice the memory of the last one is
    free. The result depends on the memory that is free at this moment, so that a run stores it.

    Args:
        settings: with ``global_batch_tokens``; ``batch_tokens`` is the upper limit.
        build: builds the training task for settings.
        make: makes the strategy that will train.
        device: the device of the model.
        seed: of the run.
        notify: called with the result.

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
    budget = _SHARE[device.type] * before.free
    fitting, used, size = 0, 0.0, min(_FIRST, settings.batch_tokens)
    while size <= settings.batch_tokens and 2 * used <= budget:
        took = _trial(settings.model_copy(update={"batch_tokens": size}), build, make, device, seed)
        if took is None or took - before.used > budget:
            break
        fitting, used = size, max(0.0, took - before.used)
        if size == settings.batch_tokens:
            break
        size = min(2 * size, settings.batch_tokens)
    if not fitting:
        raise UserError(
            f"training.batch_from_memory: a batch of {size:,} tokens needs more than "
            f"{readable_size(int(budget))} of memory; use a smaller model or shorter rows"
        )
    # As few batches as fit, of equal size, so that the step has the tokens that were asked for.
    count = -(-whole // (fitting * shards))
    even = -(-whole // (count * shards))
    count = batches_of(whole, even * shards)
    notify(
        f"batches of {even:,} tokens, {count * shards:,} per step of {whole:,}: trial steps with "
        f"{fitting:,} tokens used {readable_size(int(used))} of {readable_size(int(budget))}"
    )
    return settings.model_copy(update={"batch_tokens": even, "accumulation_steps": count})


def _trial(
    settings: LoopSettings,
    build: Callable[[LoopSettings], Task],
    make: MakeStrategy,
    device: torch.device,
    seed: int,
) -> int | None:
    """The most bytes in use while gradients were computed; None if they did not fit on a card."""
    task = build(settings)
    parameters = [p for group in groups_of(task.model, settings) for p in group.parameters]
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    strategy = make(task, parameters, device, scaler)
    training = task.model.training
    task.model.train()
    try:
        with trial(task):
            batches = task.batches(Position(seed, 0, 0), strategy.rank)
            each = strategy.rank.each
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
    moments = {"adam": 2, "adamw": 2}.get(settings.optimiser, 0)
    optimiser = moments * sum(p.numel() * p.element_size() for p in parameters)
    return None if found is None else found.used + optimiser


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
