"""Contexts that prepare models for inference and restore them afterwards."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

from heedful.basics.device import autocast
from heedful.basics.errors import UserError
from heedful.basics.thread_contention import without_contention
from heedful.layers.bfloat16_linear import bfloat16_copy
from heedful.layers.int8_linear import int8_copy

Model = TypeVar("Model", bound=nn.Module)


def in_precision(
    models: Sequence[Model], precision: str, device: torch.device
) -> tuple[tuple[Model, ...], str]:
    """Models for search in a precision, and the precision of autocast around them.

    On the CPU, models for int8 or bfloat16 are copies; products outside their linear maps are in
    float32.

    Raises:
        UserError: int8 is not available, because a model only aligns or PyTorch lacks the products.
    """
    writing = all(model.generates for model in models)
    if precision == "int8":
        if not writing:
            raise UserError("int8 is not available for word aligners; use float32 or bfloat16")
        return tuple(int8_copy(model) for model in models), "float32"
    if precision == "bfloat16" and device.type == "cpu" and writing:
        return tuple(bfloat16_copy(model) for model in models), "float32"
    return tuple(models), precision


@contextmanager
def ready(model: nn.Module, device: torch.device, precision: str = "float32") -> Iterator[None]:
    """Evaluation mode, no gradients, and matrix products in ``precision`` while the block runs."""
    with (
        evaluating(model),
        torch.inference_mode(),
        autocast(device, precision),
        without_contention(device),
    ):
        yield


_lock = threading.Lock()
_evaluating: "WeakKeyDictionary[nn.Module, tuple[int, list[nn.Module]]]" = WeakKeyDictionary()
"""Model in use → number of callers, and the modules to set back to training mode."""


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Set models to evaluation mode; training mode is restored when no thread uses them any more.

    The mode belongs to the model, not to a thread: a thread that trains the same model at the same
    time would train without dropout. Use a copy of the model in one of the two.
    """
    for model in models:
        with _lock:
            count, training = _evaluating.get(model, (0, []))
            training += [part for part in model.modules() if part.training]
            _evaluating[model] = count + 1, training
            for part in training:
                part.training = False
    try:
        yield
    finally:
        for model in models:
            with _lock:
                count, training = _evaluating.pop(model)
                if count > 1:
                    _evaluating[model] = count - 1, training
                    continue
                for part in training:
                    part.training = True
