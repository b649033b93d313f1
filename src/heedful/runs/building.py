"""Builds the models of runs: on ``meta``, with fresh weights, or with those of a checkpoint."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import nn

from heedful.basics.errors import UserError
from heedful.runs.attention_parts import load_weights
from heedful.runs.model_size import on_meta, require_room
from heedful.runs.run import Run

M = TypeVar("M", bound=nn.Module)


def outline(run: Run, fresh: Callable[[], M]) -> M:
    """A run's model on the device ``meta``: shapes without data.

    Args:
        run: the run.
        fresh: builds the model with random weights.

    Raises:
        UserError: the settings are incompatible.
    """
    return on_meta(lambda: _checked(run, fresh))


def _checked(run: Run, fresh: Callable[[], M]) -> M:
    try:
        return fresh()
    except (ValueError, RuntimeError) as error:  # RuntimeError: too large for PyTorch's sizes
        raise UserError(f"{run.path / 'recipe.toml'}: {error}") from error


def no_frozen_tables(model: nn.Module) -> tuple[nn.Embedding, ...]:
    """Default of ``frozen``: no embedding table is frozen."""
    return ()


def build(
    run: Run,
    fresh: Callable[[], M],
    frozen: Callable[[M], Iterable[nn.Embedding]] = no_frozen_tables,
) -> M:
    """A run's model with random weights, determined by the recipe's seed.

    Args:
        run: the run.
        fresh: as for :func:`outline`.
        frozen: returns the embedding tables of the model that are not trained.

    Raises:
        UserError: the settings are incompatible, or the model does not fit into memory.
    """
    require_room(outline(run, fresh), str(run.path / "recipe.toml"))
    torch.manual_seed(run.recipe.seed)
    model = _checked(run, fresh)
    for table in frozen(model):
        table.weight.requires_grad_(False)
    return model


def load(
    run: Run,
    fresh: Callable[[], M],
    frozen: Callable[[M], Iterable[nn.Embedding]] = no_frozen_tables,
    checkpoint: str | int | None = None,
) -> M:
    """A run's model with the weights of a checkpoint.

    Args:
        run: the run.
        fresh: as for :func:`outline`.
        frozen: as for :func:`build`.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's chosen one if None.

    Raises:
        UserError: the checkpoint does not exist, is damaged or does not fit the recipe's model, or
            the model does not fit into memory.
    """
    point = run.chosen(checkpoint)
    return load_weights(lambda: build(run, fresh, frozen), lambda: outline(run, fresh), point)
