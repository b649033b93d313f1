"""Which strategy computes the steps of a training."""

import functools
from typing import Any

import torch

from heedful.runs.settings import LoopSettings
from heedful.training.data_parallel import DataParallel
from heedful.training.processes import Processes
from heedful.training.shards import require_shards
from heedful.training.strategies import MakeStrategy, SingleProcess
from heedful.training.threads import Threads
from heedful.training.virtual_shards import VirtualShards


def require_divisible(settings: LoopSettings, processes: Processes) -> None:
    """Raise UserError if the processes cannot share the steps of these settings evenly."""
    require_shards(settings.virtual_shards, processes.rank.count)


def strategy_of(
    settings: LoopSettings,
    device: torch.device,
    precision: str,
    *,
    seed: int,
    processes: Processes,
) -> MakeStrategy:
    """The strategy for settings, and for the processes that train together.

    Args:
        settings: the settings of the loop.
        device: the device of the model.
        precision: the precision of training.
        seed: the seed of the run.
        processes: the processes that train together.

    Raises:
        UserError: the processes cannot share the steps evenly.
    """
    require_divisible(settings, processes)
    threads = device.type == "cpu" and precision != "float16" and not settings.compile
    if settings.virtual_shards == 1:
        return Threads if threads else SingleProcess
    shared: dict[str, Any] = {
        "seed": seed,
        "shards": settings.virtual_shards,
        "processes": processes,
    }
    if settings.exact_reduction:
        return functools.partial(VirtualShards, parallel=threads, **shared)
    return functools.partial(DataParallel, **shared)
