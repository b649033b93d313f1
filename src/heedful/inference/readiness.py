"""A model made ready to answer, and as it was before when it has answered."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from heedful.basics.crowding import uncrowded
from heedful.basics.device import autocast
from heedful.basics.errors import UserError
from heedful.layers.quantized import int8_copy
from heedful.layers.rounded import bfloat16_copy
from heedful.models.language import LanguageModel
from heedful.models.pairs import PairModel

Model = TypeVar("Model", bound=nn.Module)


def in_precision(
    models: Sequence[Model], precision: str, device: torch.device
) -> tuple[tuple[Model, ...], str]:
    """Models as they search, and the precision of autocast around them.

    On the CPU, models that search in int8 or bfloat16 are copies; products outside their linear
    maps are float32 then.

    Raises:
        UserError: int8 is asked for and a model only aligns, or PyTorch has no int8 products here.
    """
    writing = all(map(searches, models))
    if precision == "int8":
        if not writing:
            raise UserError("a word aligner has no int8; use float32 or bfloat16")
        return tuple(int8_copy(model) for model in models), "float32"
    if precision == "bfloat16" and device.type == "cpu" and writing:
        return tuple(bfloat16_copy(model) for model in models), "float32"
    return tuple(models), precision


def searches(model: nn.Module) -> bool:
    """Whether a model writes outputs, and not only reads or aligns texts."""
    return isinstance(model, LanguageModel) or (isinstance(model, PairModel) and model.translates)


@contextmanager
def ready(model: nn.Module, device: torch.device, precision: str = "float32") -> Iterator[None]:
    """Evaluation mode, no gradients, matrix products in ``precision``; afterwards as before."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        with torch.inference_mode(), autocast(device, precision), uncrowded(device):
            yield
    finally:
        for part in training:
            part.training = True
