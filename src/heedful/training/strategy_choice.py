"""Which strategy computes the steps of a training."""

import functools
from typing import Any

import torch

from heedful.runs.settings import LoopSettings
from heedful.training.data_parallel import DataParallel
from heedful.training.processes import Processes
from heedful.training.protocol import Task
from heedful.training.shards import require_shards
from heedful.training.strategies import MakeStrategy, SingleProcess
from heedful.training.threads import Threads
from heedful.training.virtual_shards import VirtualShards


def require_divisible(settings: LoopSettings, processes: Processes) -> None:
    """Raise UserError if the processes cannot share the steps of these settings evenly."""
    require_shards(settings.virtual_shards, processes.rank.count)


def strategy_of(
    task: Task,
    settings: LoopSettings,
    device: torch.device,
    precision: str,
    *,
    seed: int,
    processes: Processes,
    alone: bool = False,
) -> MakeStrategy:
    """The strategy for settings, and for the processes that train together.

    With FSDP2, the parameters of the model are replaced by parts of them. Optimisers are therefore
    built after this call.

    Args:
        task: the task to train.
        settings: the settings of the loop.
        device: the device of the model.
        precision: the precision of training.
        seed: the seed of the run.
        processes: the processes that train together.
        alone: whether the strategy computes the shards of this process without the others, to
            measure what that needs.

    Raises:
        UserError: the processes cannot share the steps evenly, or FSDP2 cannot train the task.
    """
    require_divisible(settings, processes)
    shared: dict[str, Any] = {
        "seed": seed,
        "shards": settings.virtual_shards,
        "processes": processes,
    }
    if alone:
        own = settings.virtual_shards // processes.rank.count
        shared |= {"shards": own, "processes": Processes()}
    if settings.strategy == "fsdp":
        from heedful.training.fsdp import FullySharded, shard  # takes a while

        module = shard(
            task,
            device,
            precision,
            cpu_offload=settings.cpu_offload,
            gather_precision=settings.gather_precision,
        )
        return functools.partial(FullySharded, module=module, **shared)
    threads = device.type == "cpu" and precision != "float16" and not settings.compile
    if settings.virtual_shards == 1:
        return Threads if threads else SingleProcess
    if settings.exact_reduction:
        return functools.partial(VirtualShards, parallel=threads, **shared)
    return functools.partial(DataParallel, **shared)
