"""Trains small runs in virtual shards; its functions are called in several processes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from heedful.basics.errors import UserError
from heedful.runs.opening import open_run
from heedful.runs.registry import kind_of
from heedful.training.data_parallel import DataParallel
from heedful.training.distillation import Wrapped
from heedful.training.loop import Loop
from heedful.training.processes import join
from heedful.training.protocol import Loss
from heedful.training.report import Report

CPU = torch.device("cpu")


class Partly(Wrapped):
    """Some batches use a further parameter, and all change a buffer; another one is never used."""

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        torch.manual_seed(1)
        self.model.further = nn.Parameter(torch.randn(3))
        self.model.unused = nn.Parameter(torch.randn(3))
        self.model.norm = nn.BatchNorm1d(2, affine=False)

    def loss(self, batch: Any) -> Loss:
        loss = self.task.loss(batch)
        weight = float(batch.weight)
        normal = self.model.norm(torch.tensor([[weight, 1.0], [2.0, weight]]))
        if batch.weight % 2:
            return loss
        return loss._replace(total=loss.total + self.model.further.sum() * normal[0, 0])


class Counted(Wrapped):
    """A task that counts its batches, which cannot be averaged if shards have different numbers."""

    count = 0

    def loss(self, batch: Any) -> Loss:
        self.count += int(batch.rows.tokens.sum())
        return self.task.loss(batch)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"count": torch.tensor(self.count)}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        self.count = int(tensors["count"])


WRAPPERS = {"partly": Partly, "counted": Counted}


def loop_of(run: Path, out: Path, wrapped: str | None = None, **settings: Any) -> Loop:
    """The loop of a prepared run that writes to another folder."""
    opened = open_run(run)
    kind = kind_of(opened.recipe)
    changed = opened.recipe.training.model_copy(update=settings)
    precision = settings.get("precision", "float32")
    model = kind.build_model(opened)
    task: Any = kind.build_task(opened, model, changed, CPU, precision)
    return Loop(
        WRAPPERS[wrapped](task) if wrapped else task,
        changed,
        out,
        seed=opened.recipe.seed,
        device=CPU,
        precision=precision,
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
    sums: list[Any] = []
    if isinstance(loop.strategy, DataParallel) and join().rank.count > 1:
        loop.strategy.parallel = loop.strategy.wrapped()
        loop.strategy.parallel.register_comm_hook(sums, _count)
    with loop.report:
        ended = loop.run()
    task_state = {name: one.clone() for name, one in loop.task.tensors().items()}
    return {
        "ended": ended,
        "state": task_state,
        "sums": len(sums),
        "weights": {name: one.detach() for name, one in loop.task.model.state_dict().items()},
        "position": loop.progress.position,
        "random": torch.get_rng_state(),
        "tokens": loop.progress.total_weight,
    }


def all_trained(jobs: list[tuple[Any, ...]]) -> list[Any]:
    """What :func:`trained` returns for each job, as NumPy arrays; or the error."""
    join()
    found = []
    for job in jobs:
        try:
            found.append(_plain(trained(*job)))
        except UserError as error:
            found.append(str(error))
    return [*found, averages(3.0)]


def averages(value: float) -> float:
    """The mean of ``value × rank`` over the processes, by the collective of gloo."""
    own = torch.tensor([value * join().rank.index])
    dist.all_reduce(own, op=dist.ReduceOp.AVG)
    return float(own)


def _count(sums: list[Any], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    sums.append(bucket.index())
    return allreduce_hook(None, bucket)  # type: ignore[arg-type]


def _plain(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return found.numpy()
    return {key: _plain(value) for key, value in found.items()} if type(found) is dict else found
