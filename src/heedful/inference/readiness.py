"""A model made ready to answer, and as it was before when it has answered."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from heedful.basics.device import autocast


@contextmanager
def ready(model: nn.Module, device: torch.device, precision: str = "float32") -> Iterator[None]:
    """Evaluation mode, no gradients, matrix products in ``precision``; afterwards as before."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        with torch.inference_mode(), autocast(device, precision):
            yield
    finally:
        for part in training:
            part.training = True
