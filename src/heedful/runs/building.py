"""Models of runs: their outline, fresh weights, and the weights of a checkpoint."""

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
    """A run's model on the device ``meta``: its shapes, without numbers or memory for them.

    Args:
        run: the run.
        fresh: builds the model, with weights as they are drawn.

    Raises:
        UserError: the settings do not go together.
    """
    return on_meta(lambda: _checked(run, fresh))


def _checked(run: Run, fresh: Callable[[], M]) -> M:
    try:
        return fresh()
    except (ValueError, RuntimeError) as error:  # of a size that PyTorch cannot count
        raise UserError(f"{run.path / 'recipe.toml'}: {error}") from error


def no_tables(model: nn.Module) -> tuple[nn.Embedding, ...]:
    """Of a model that is trained as a whole: no table stays as it is."""
    return ()


def build(
    run: Run,
    fresh: Callable[[], M],
    frozen: Callable[[M], Iterable[nn.Embedding]] = no_tables,
) -> M:
    """A run's model with fresh weights, which the recipe's seed decides.

    Args:
        run: the run.
        fresh: as for :func:`outline`.
        frozen: the tables of the model that stay as they are.

    Raises:
        UserError: the settings do not go together, or it is larger than the memory.
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
    frozen: Callable[[M], Iterable[nn.Embedding]] = no_tables,
    checkpoint: str | int | None = None,
) -> M:
    """A run's model with the weights of a checkpoint.

    Args:
        run: the run.
        fresh: as for :func:`outline`.
        frozen: as for :func:`build`.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.

    Raises:
        UserError: there is no such checkpoint, it is damaged or not of the recipe's model, or
            larger than the memory.
    """
    point = run.chosen(checkpoint)
    return load_weights(lambda: build(run, fresh, frozen), lambda: outline(run, fresh), point)
