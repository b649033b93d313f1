"""Strategies of the loop: one module call a step, nothing read back, several processes."""

import json
import math
import threading
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from tests.test_loop import Line, Points
from tests.tolerance import assert_near
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.data.positions import Rank
from heedful.runs.checkpoints import whole_checkpoints
from heedful.runs.settings import LoopSettings
from heedful.training.loop import DivergedError, Loop
from heedful.training.protocol import Loss, Validation
from heedful.training.report import Report
from heedful.training.strategies import BatchLoss, LossModule, MakeStrategy, SingleProcess
from heedful.training.threads import Threads

CPU = torch.device("cpu")
SCALER = torch.amp.GradScaler("cpu", enabled=False)


class Halves(Line):
    """A line whose batches are two points for each of two threads; validates nothing."""

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__([])
        torch.manual_seed(1)
        self.model = cast(nn.Linear, model or nn.Linear(1, 1))

    def split(self, batch: Points, count: int, fewest: int = 1024) -> list[Points]:
        return [Points(batch.x[:2], 2), Points(batch.x[2:], 2)]

    def validate(self) -> Validation:
        return Validation({}, [])


def loop_of(
    task: Any, folder: Path, steps: int, strategy: MakeStrategy | None = None, **settings: Any
) -> Loop:
    made = LoopSettings(
        max_steps=steps,
        **{"warmup_steps": 0, "checkpoint_every": 100, "log_every": 100, **settings},
    )
    return Loop(
        task,
        made,
        folder,
        seed=1,
        device=CPU,
        precision="float32",
        report=Report(steps),
        strategy=strategy,
    )


class Reads(TorchDispatchMode):
    """Counts numbers that are read back from a device."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_a_step_reads_no_number_back(tmp_path: Path) -> None:
    # SGD: Adam keeps its step on the CPU, from where it is read without waiting for a device.
    loop = loop_of(Halves(), tmp_path, 10, SingleProcess, optimiser="sgd", accumulation_steps=2)
    batches = loop.task.batches(loop.progress.position)
    loop._step(batches)  # the first one counts operations
    with Reads() as reads:
        for _ in range(3):
            loop._step(batches)
    assert reads.count == 0
    with Reads() as reads:
        loop._read_sums()
    assert reads.count > 0
    assert set(loop.progress.sums) == {"loss"}
    assert loop.progress.weights == {"loss": 4 * 2 * 4.0}


class Breaking(Halves):
    """Its loss, or its gradient, is not finite at a step."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__()
        self.at, self.what, self.step = at, what, 0

    def loss(self, batch: Points) -> Loss:
        loss = super().loss(batch)
        self.step += 1
        if self.step - 1 != self.at:  # the first loss is that of counting operations
            return loss
        total = loss.total
        if self.what == "loss":
            return Loss(total, {"loss": total.detach() * math.nan})
        return Loss(total + (total - total.detach()).sqrt(), loss.parts)


@pytest.mark.parametrize("what", ["loss", "gradient's norm"])
@pytest.mark.parametrize("at", [1, 5, 6, 7])
def test_the_first_step_that_was_not_finite_is_named(tmp_path: Path, what: str, at: int) -> None:
    loop = loop_of(Breaking(at, what), tmp_path, 12, SingleProcess, checkpoint_every=3, log_every=6)
    with loop.report, pytest.raises(DivergedError, match=f"the {what} is not finite") as error:
        loop.run()
    assert f"after step {at}:" in str(error.value)
    saved = [point.step for point in whole_checkpoints(tmp_path / "checkpoints")]
    assert saved == [step for step in (3, 6) if step < at]
    for point in whole_checkpoints(tmp_path / "checkpoints"):
        assert all(tensor.isfinite().all() for tensor in point.weights().values())


class Normalised(nn.Module):
    """A line over batch normalisation, whose means and variances change with each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.line = nn.BatchNorm1d(1), nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.line(self.norm(x + torch.arange(len(x)).unsqueeze(1))))


def test_models_whose_buffers_change_are_learnt_whole(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for model, parts in ((nn.Linear(1, 1), 2), (Normalised(), 1)):
            task = Halves(model)
            threads = Threads(task, list(model.parameters()), CPU, SCALER)
            kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
            batch = Points(torch.ones(4, 1), 4)
            assert len(threads.parts(batch)) == parts
            for name, buffer in model.named_buffers():
                assert torch.equal(buffer, kept[name])  # finding it out changes nothing
            assert len(threads.forward_backward(batch, 4, last=True)) == parts
        loop = loop_of(Halves(Normalised()), tmp_path, 3)
        with loop.report:
            assert loop.run()
        # Neither counting operations nor finding out is a batch that was learnt.
        assert loop.task.model.get_buffer("norm.num_batches_tracked").item() == 3
    finally:
        torch.set_num_threads(before)


def test_operations_are_counted_by_the_strategy(tmp_path: Path) -> None:
    """Through its module, which a wrapper may have taken the place of."""
    loop = loop_of(Halves(), tmp_path, 3, SingleProcess)
    batches, calls = loop.task.batches(loop.progress.position), []
    assert isinstance(loop.strategy, SingleProcess)
    loop.strategy.module.register_forward_pre_hook(lambda *given: calls.append(given))
    for steps, expected in ((1, 2), (2, 3)):  # the first batch is computed twice
        loop._step(batches)
        assert (loop.progress.step, len(calls)) == (steps, expected)
    assert loop.progress.operations_per_weight > 0


class AllReduce(SingleProcess):
    """One of two processes, which are threads here, each with a process group of gloo."""

    group: dist.ProcessGroupGloo

    def total(self, weight: int) -> int:
        return int(self._sum(torch.tensor([float(weight)])).item())

    def any(self, flag: bool) -> bool:
        return self._sum(torch.tensor([float(flag)])).item() > 0

    def forward_backward(self, batch: Any, weight: float, *, last: bool) -> list[BatchLoss]:
        learnt = super().forward_backward(batch, weight, last=last)
        if last:
            for parameter in self.parameters:
                assert parameter.grad is not None
                self._sum(parameter.grad)
        return learnt

    def reduce(self, sums: dict[str, float]) -> dict[str, float]:
        # float64: these are the sums of the record
        return {
            name: self._sum(torch.tensor([value], dtype=torch.float64)).item()
            for name, value in sums.items()
        }

    def _sum(self, tensor: Tensor) -> Tensor:
        self.group.allreduce([tensor]).wait()
        return tensor


def two_processes(folder: Path, steps: int, ends: int | None = None) -> list[Loop]:
    """Loops over halves of the batches; the second process is interrupted at step ``ends``."""
    store, loops = dist.HashStore(), [cast(Loop, None)] * 2
    tasks = [Halves(), Halves()]  # here: all threads draw first weights from one generator

    def work(index: int) -> None:
        class Strategy(AllReduce):
            rank = Rank(index, 2)
            group = dist.ProcessGroupGloo(store, index, 2)

        loop = loops[index] = loop_of(tasks[index], folder, steps, Strategy, log_every=2)
        if index == 1 and ends is not None:
            add = loop._sums.add

            def add_and_end(losses: dict[str, Tensor], norm: Tensor | None) -> None:
                add(losses, norm)
                loop.interrupted |= loop.progress.step == ends

            loop._sums.add = add_and_end  # type: ignore[method-assign, assignment]
        loop.run()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return loops


def test_two_processes_reach_the_weights_of_one(tmp_path: Path) -> None:
    single = loop_of(
        Halves(), tmp_path / "one", 4, SingleProcess, accumulation_steps=2, log_every=2
    )
    with single.report:
        assert single.run()
    first, second = two_processes(tmp_path / "two", 4)
    for own, other, whole in zip(
        first.task.model.parameters(),
        second.task.model.parameters(),
        single.task.model.parameters(),
        strict=True,
    ):
        assert torch.equal(own, other)
        assert_near(own.detach(), whole.detach(), terms=8, size=2.0)
    assert first.progress.position == second.progress.position == single.progress.position
    for name in ("one", "two"):
        lines = (tmp_path / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        assert [line["tokens"] for line in found] == [16, 32]
        expected = [line["loss"] for line in found]
    losses = [json.loads(line)["loss"] for line in lines]
    assert losses == pytest.approx(expected, rel=1e-5)


def test_an_interruption_of_one_process_ends_all_with_one_checkpoint(tmp_path: Path) -> None:
    first, second = two_processes(tmp_path, 50, ends=3)
    assert first.interrupted
    assert second.interrupted
    assert first.progress.step == second.progress.step == 3
    assert [point.step for point in whole_checkpoints(tmp_path / "checkpoints")] == [3]


class Finished(dist.Work):
    """A collective operation whose result is known."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._future: torch.futures.Future[Any] = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout: Any = None) -> bool:
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future


class OneProcess(dist.ProcessGroup):
    """A group of one process.

    gloo's can block for ever: its thread waits for Python's lock while it holds its own, for which
    the main thread waits (about once in 1,000 groups).
    """

    def broadcast(self, tensors: list[Tensor], options: Any = None) -> dist.Work:
        return Finished(tensors)

    def allreduce(self, tensors: list[Tensor], options: Any = None) -> dist.Work:
        return Finished(tensors)

    def allgather(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], options: Any = None
    ) -> dist.Work:
        for output, tensor in zip(outputs, inputs, strict=True):
            output[0].copy_(tensor)
        return Finished(outputs)


def test_the_loss_module_can_be_wrapped_by_pytorch() -> None:
    task = Halves()
    wrapped = DistributedDataParallel(LossModule(task), process_group=OneProcess(0, 1))
    loss = wrapped(Points(torch.ones(4, 1), 4))
    torch.autograd.backward(loss.total)
    found = [parameter.grad for parameter in task.model.parameters()]
    task.model.zero_grad()
    torch.autograd.backward(task.loss(Points(torch.ones(4, 1), 4)).total)
    for ours, parameter in zip(found, task.model.parameters(), strict=True):
        assert ours is not None
        assert parameter.grad is not None
        assert torch.equal(ours, parameter.grad)
