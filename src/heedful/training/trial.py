"""Computes a loss and restores all state that this changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.training.protocol import Task


class SavedState(NamedTuple):
    """The state before a trial."""

    random: Tensor
    """State of PyTorch's generator on the CPU."""
    buffers: dict[str, Tensor]
    """The model's buffers by name."""


@contextmanager
def trial(task: Task) -> Iterator[SavedState]:
    """Restore the random generators, the model's buffers and the task's state after the block.

    Gradients that were added to parameters stay.
    """
    kept = {name: tensor.clone() for name, tensor in task.tensors().items()}
    buffers = dict(task.model.named_buffers())
    before = SavedState(
        torch.get_rng_state(), {name: buffer.clone() for name, buffer in buffers.items()}
    )
    devices = {parameter.device for parameter in task.model.parameters()}
    with torch.random.fork_rng([device for device in devices if device.type == "cuda"]):
        try:
            yield before
        finally:
            for name, buffer in buffers.items():
                buffer.copy_(before.buffers[name])
            task.load(kept)
