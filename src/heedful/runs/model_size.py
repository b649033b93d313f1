"""What a model needs of memory, known before anything of it is allocated."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from heedful.basics.errors import UserError
from heedful.basics.memory import machine_memory, readable_size
from heedful.runs.settings import Recipe

M = TypeVar("M", bound=nn.Module)

TRAINED_COPIES = {"adam": 4, "adamw": 4, "sgd": 2}
"""By optimiser, tensors as large as the weights: weights, gradients, and Adam's two moments."""


def on_meta(build: Callable[[], M]) -> M:
    """The model that ``build`` makes, with shapes and no numbers: it takes no memory.

    PyTorch's random generator is left as it was.
    """
    with torch.device("meta"):
        return build()


def count_parameters(model: nn.Module) -> int:
    """Numbers in the model's parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def require_trainable(recipe: Recipe, build: Callable[[], nn.Module]) -> None:
    """Raise UserError, before the data are prepared, for a model that cannot be trained here.

    Args:
        recipe: its settings.
        build: makes the model with the smallest vocabulary.
    """
    copies = TRAINED_COPIES[recipe.training.optimiser]
    try:
        require_room(on_meta(build), "the recipe's [model]", copies=copies)
    except (ValueError, RuntimeError) as error:  # of settings that exclude each other
        raise UserError(f"the recipe's [model]: {error}") from error


def require_room(model: nn.Module, where: str, *, copies: int = 1) -> None:
    """Raise UserError for a model larger than this machine's memory.

    Args:
        model: on any device, such as ``meta``.
        where: what says how large it is, for the message.
        copies: tensors as large as its parameters that are held at a time.
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
