"""Resolves ``training.precision = "auto"`` on the CPU by a measurement, which the run stores."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from heedful.basics.autotuning import Measured, fastest
from heedful.basics.device import autocast, has_fast_bfloat16, one_thread
from heedful.data.positions import Position
from heedful.inference.fastest_precision import describe_choice, sizes_of
from heedful.training.protocol import Task

_TOKENS = 256
"""Approximate tokens or examples of the part of a batch that is measured."""


def training_precision(
    task: Task,
    position: Position,
    device: torch.device,
    saved: Mapping[str, Any] | None,
    notify: Callable[[str], None],
) -> str:
    """The precision to train in: that of the run's last checkpoint, or else the faster one.

    An interrupted run must end with the same weights as an uninterrupted one, so a run keeps the
    precision that was chosen on the processor where it started.

    Args:
        task: the task, built for float32.
        position: of the batch to measure with; weights are not changed.
        device: the training device.
        saved: the state of the run's last checkpoint; None if there is none.
        notify: called with the result of the measurement.
    """
    if saved is not None:
        # Checkpoints without the precision are of a version in which the processor alone determined
        # it.
        usual = "bfloat16" if has_fast_bfloat16(device) else "float32"
        kept = str(saved.get("precision", usual))
        if kept == "float32" or has_fast_bfloat16(device):
            return kept
    found = _measured(task, position, device) if has_fast_bfloat16(device) else None
    notify(f"training.precision = 'auto': {describe_choice(found)}")
    return "float32" if found is None else found.chosen


def _measured(task: Task, position: Position, device: torch.device) -> Measured:
    """Time the gradients of some rows of the first batch in both precisions, on one thread."""
    _, whole = next(iter(task.batches(position)))
    batch = task.split(whole, int(whole.weight), _TOKENS)[0]
    trained = [one for one in task.model.parameters() if one.requires_grad]
    kept = {name: tensor.clone() for name, tensor in task.tensors().items()}
    training = task.model.training

    def candidate(precision: str) -> Callable[[], None]:
        def work() -> None:
            with autocast(device, precision):
                total = task.loss(batch).total
            torch.autograd.grad(total, trained, allow_unused=True)

        return work

    candidates = {name: candidate(name) for name in ("float32", "bfloat16")}
    task.model.train()
    try:
        eager = torch.compiler.set_stance("force_eager")
        with eager, torch.random.fork_rng([]), one_thread():
            size = int(batch.weight).bit_length()
            return fastest(
                candidates, f"train {type(task).__name__} {sizes_of(task.model)} 2^{size}"
            )
    finally:
        task.model.train(training)
        task.load(kept)
