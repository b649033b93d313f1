"""The additive reductions as PyTorch operators, which ``torch.compile`` supports."""

from typing import Any

import torch
from torch import Tensor

from heedful.basics.device import without_autocast
from heedful.kernels.additive_rows import AdditiveRows, rows_of_table
from heedful.kernels.additive_selection import chosen_kernel, tiles_for, use_kernel
from heedful.kernels.additive_tiles import plain_scores
from heedful.kernels.operators import Operator, folded, mapped_first, one_by_one, second_derivatives


def _scores(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    whole = slice(0, a.shape[1]), slice(0, b.shape[1])
    with without_autocast(a):
        return tiles_for(a, b, v).scores(*whole)


scores = Operator("additive_scores", _scores)


@scores.operator.register_fake
def _(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], b.shape[1])


def _scores_backward(
    grad: Tensor, a: Tensor, b: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    with without_autocast(a):
        tiles = tiles_for(a, b, v)
        tiles.start_gradients()
        tiles.add_gradients(slice(0, a.shape[1]), slice(0, b.shape[1]), grad.to(a.dtype))
        return tiles.collect()


scores_gradients = Operator("additive_scores_backward", _scores_backward)


@scores_gradients.operator.register_fake
def _(grad: Tensor, a: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(a), torch.empty_like(b), torch.empty_like(v)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.kernel = chosen_kernel()


def _through_scores(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    by: tuple[Tensor, ...]
    if torch.compiler.is_compiling():
        by = scores_gradients(grad, *ctx.saved_tensors)
        return by
    with use_kernel(
        ctx.kernel
    ):  # On a GPU, the backward pass runs in another thread than the forward pass.
        by = scores_gradients(grad, *ctx.saved_tensors)
    return by


def _through_scores_backward(ctx: Any, *by: Tensor) -> tuple[Tensor, ...]:
    grad, *tensors = ctx.saved_tensors
    return second_derivatives(plain_scores, tuple(tensors), grad, by)


scores.register_autograd(_through_scores, _setup_context)
scores_gradients.register_autograd(_through_scores_backward, _setup_context)


@scores.operator.register_vmap
def _(info: Any, places: tuple[int | None, ...], *given: Tensor) -> tuple[Any, Any]:
    if places[2] is not None:
        return one_by_one(scores.operator)(info, places, *given)
    a, b = (folded(*one, info.batch_size) for one in zip(given[:2], places[:2], strict=True))
    made = scores.operator(a, b, given[2])
    return made.unflatten(0, (info.batch_size, -1)), 0


def _context(
    a: Tensor,
    b: Tensor,
    value: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    scale: float,
    dropout: float,
    seed: Tensor,
) -> Tensor:
    rows = AdditiveRows(a, b, value, v, rows_of_table(allowed), scale, dropout, seed)
    return rows.context()


context = Operator("additive_context", _context)


@context.operator.register_fake
def _(
    a: Tensor,
    b: Tensor,
    value: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    scale: float,
    dropout: float,
    seed: Tensor,
) -> Tensor:
    return value.new_empty(a.shape[0], a.shape[1], value.shape[2])


def _context_backward(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    value: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    scale: float,
    dropout: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = AdditiveRows(a, b, value, v, rows_of_table(allowed), scale, dropout, seed)
    return rows.gradients(grad)


context_gradients = Operator("additive_context_backward", _context_backward)


@context_gradients.operator.register_fake
def _(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    value: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    scale: float,
    dropout: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    by_a, by_b = torch.empty_like(a), torch.empty_like(b)
    return by_a, by_b, torch.empty_like(value), torch.empty_like(v)


def _setup_context_output(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, value, v, allowed, scale, dropout, seed = inputs
    ctx.save_for_backward(a, b, value, v, allowed, seed)
    ctx.settings = scale, dropout


def _context_autograd(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, seed = ctx.saved_tensors
    by = context_gradients(grad, *tensors, *ctx.settings, seed)
    return *by, None, None, None, None


def _keep_context_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, scale, dropout, seed = inputs
    ctx.save_for_backward(*tensors, seed)
    ctx.settings = scale, dropout


def _through_context_backward(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
    grad, *tensors, allowed, seed = ctx.saved_tensors
    scale, dropout = ctx.settings

    def plain(a: Tensor, b: Tensor, value: Tensor, v: Tensor) -> Tensor:
        rows = AdditiveRows(a, b, value, v, rows_of_table(allowed), scale, dropout, seed)
        return rows.plain()

    return *second_derivatives(plain, tuple(tensors), grad, by), None, None, None, None


context.register_autograd(_context_autograd, _setup_context_output)
context_gradients.register_autograd(_through_context_backward, _keep_context_backward)


@context.operator.register_vmap
def _(info: Any, places: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
    *tensors, v, allowed, scale, dropout, seed = given
    size = info.batch_size
    # Dropout is drawn for the whole tensor: with a folded dimension, masks would differ.
    if dropout or places[3] is not None or places[7] is not None:
        return one_by_one(context.operator)(info, places, *given)
    parts = [folded(*one, size) for one in zip(tensors, places[:3], strict=True)]
    if allowed is not None and (places[4] is not None or allowed.shape[0] > 1):
        allowed = mapped_first(allowed, places[4], size)
        allowed = allowed.expand(-1, len(parts[0]) // size, -1, -1).flatten(0, 1)
    made = context.operator(*parts, v, allowed, scale, dropout, seed)
    return made.unflatten(0, (size, -1)), 0


# The gradient of v sums over all entries, separately for each index of the mapped dimension.
for _each in (scores_gradients.operator, context_gradients.operator):
    _each.register_vmap(one_by_one(_each))
