"""Trains small runs in virtual shards; its functions are called in several processes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from heedful.runs.opening import open_run
from heedful.runs.registry import kind_of
from heedful.training.loop import Loop
from heedful.training.processes import join
from heedful.training.report import Report

CPU = torch.device("cpu")


def loop_of(run: Path, out: Path, **settings: Any) -> Loop:
    """The loop of a prepared run that writes to another folder."""
    opened = open_run(run)
    kind = kind_of(opened.recipe)
    changed = opened.recipe.training.model_copy(update=settings)
    model = kind.build_model(opened)
    return Loop(
        kind.build_task(opened, model, changed, CPU, "float32"),
        changed,
        out,
        seed=opened.recipe.seed,
        device=CPU,
        precision="float32",
        report=Report(changed.max_steps),
    )


def trained(run: Path, out: Path, settings: Mapping[str, Any], stop: int | None = None) -> Any:
    """The weights and progress after training; ``stop`` interrupts it after this step."""
    loop = loop_of(run, out, **settings)
    add = loop._sums.add
    interrupting = loop.strategy.rank.index == loop.strategy.rank.count - 1

    def add_and_stop(*given: Any) -> None:
        add(*given)
        loop.interrupted |= interrupting and loop.progress.step == stop

    loop._sums.add = add_and_stop  # type: ignore[method-assign]
    with loop.report:
        ended = loop.run()
    return {
        "ended": ended,
        "weights": {name: one.detach() for name, one in loop.task.model.state_dict().items()},
        "position": loop.progress.position,
        "random": torch.get_rng_state(),
        "tokens": loop.progress.total_weight,
    }


def all_trained(jobs: list[tuple[Any, ...]]) -> list[Any]:
    """What :func:`trained` returns for each job, as NumPy arrays in place of tensors."""
    join()
    return [_plain(trained(*job)) for job in jobs]


def averages(value: float) -> float:
    """The mean of ``value × rank`` over the processes, by the collective of gloo."""
    own = torch.tensor([value * join().rank.index])
    dist.all_reduce(own, op=dist.ReduceOp.AVG)
    return float(own)


def _plain(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return found.numpy()
    return {key: _plain(value) for key, value in found.items()} if type(found) is dict else found
