"""A model made ready to answer, and as it was before when it has answered."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from heedful.basics.device import autocast
from heedful.basics.errors import UserError
from heedful.layers.quantized import int8_copy

Model = TypeVar("Model", bound=nn.Module)


def in_precision(models: Sequence[Model], precision: str) -> tuple[Model, ...]:
    """Models that write, as they search: themselves, or in int8 copies (`int8_copy`).

    Raises:
        UserError: int8 is asked for and a model only aligns, or the processor has no such products.
    """
    if precision != "int8":
        return tuple(models)
    if not all(getattr(model, "translates", True) for model in models):
        raise UserError("a word aligner has no int8; use float32 or bfloat16")
    return tuple(int8_copy(model) for model in models)


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
