"""A model made ready to answer, and as it was before when it has answered."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from heedful.basics.device import autocast, has_fast_bfloat16
from heedful.basics.errors import UserError
from heedful.layers.quantized import int8_copy
from heedful.layers.rounded import bfloat16_copy

Model = TypeVar("Model", bound=nn.Module)


def in_precision(
    models: Sequence[Model], precision: str, device: torch.device
) -> tuple[tuple[Model, ...], str]:
    """Models that write, as they search, and the precision of the products around them.

    They are themselves, or copies: in int8, and in bfloat16 on a processor that does not multiply
    it in hardware, where the products are float32.

    Raises:
        UserError: int8 is asked for and a model only aligns, or the processor has no such products.
    """
    writing = all(getattr(model, "translates", True) for model in models)
    if precision == "int8":
        if not writing:
            raise UserError("a word aligner has no int8; use float32 or bfloat16")
        return tuple(int8_copy(model) for model in models), "float32"
    slow = device.type == "cpu" and not has_fast_bfloat16(device)
    if precision == "bfloat16" and slow and writing:
        return tuple(bfloat16_copy(model) for model in models), "float32"
    return tuple(models), precision


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
