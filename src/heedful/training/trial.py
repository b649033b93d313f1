"""A loss that is computed on trial: what it changes is put back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.training.protocol import Task


class Before(NamedTuple):
    """What was there before a trial."""

    random: Tensor
    """The state of PyTorch's generator on the CPU."""
    buffers: dict[str, Tensor]
    """Of the model, by name."""


@contextmanager
def trial(task: Task) -> Iterator[Before]:
    """Put back the random generators, the model's buffers and what the task remembers.

    Gradients that are added to parameters stay.
    """
    kept = {name: tensor.clone() for name, tensor in task.tensors().items()}
    buffers = dict(task.model.named_buffers())
    before = Before(
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
