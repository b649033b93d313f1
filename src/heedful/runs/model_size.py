"""The memory that a model needs, computed before it is allocated."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from heedful.basics.errors import UserError
from heedful.basics.memory import machine_memory, readable_size
from heedful.runs.settings import Recipe

M = TypeVar("M", bound=nn.Module)

TRAINED_COPIES = {"adam": 4, "adamw": 4, "sgd": 2}
"""Copies of the weights by optimiser: weights, gradients, and the two moments of Adam."""


def on_meta(build: Callable[[], M]) -> M:
    """Build a model on the device ``meta``: shapes without data.

    PyTorch's random generator is not changed.
    """
    with torch.device("meta"):
        return build()


def count_parameters(model: nn.Module) -> int:
    """Number of elements of all parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def require_trainable(recipe: Recipe, build: Callable[[], nn.Module]) -> None:
    """Raise UserError, before data are prepared, if the model cannot be trained on this machine.

    Args:
        recipe: the settings.
        build: builds the model with the smallest vocabulary.
    """
    copies = TRAINED_COPIES[recipe.training.optimiser]
    try:
        require_room(on_meta(build), "the recipe's [model]", copies=copies)
    except (ValueError, RuntimeError) as error:  # incompatible settings
        raise UserError(f"the recipe's [model]: {error}") from error


def require_room(model: nn.Module, where: str, *, copies: int = 1) -> None:
    """Raise UserError if a model is larger than this machine's memory.

    Args:
        model: the model on any device, such as ``meta``.
        where: the origin of the model's size, for the message.
        copies: the number of copies of its parameters held at the same time.
    """
    parameters = sum(one.numel() * one.element_size() for one in model.parameters())
    buffers = sum(one.numel() * one.element_size() for one in model.buffers())
    needed, memory = copies * parameters + buffers, machine_memory()
    if memory is not None and needed > memory:
        doing = "training it" if copies > 1 else "it"
        raise UserError(
            f"{where}: a model of {count_parameters(model):,} parameters; {doing} takes at least "
            f"{readable_size(needed)}, and this machine has {readable_size(memory)} of memory; "
            "take a smaller model, vocabulary or max_length"
        )
