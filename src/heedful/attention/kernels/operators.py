"""The additive reductions as PyTorch operators, which ``torch.compile`` takes as they are.

Imported for their registration under ``torch.ops.heedful``.
"""

from typing import Any

import torch
from torch import Tensor

from heedful.attention.kernels.choosing import chosen_kernel, tiles_for, use_kernel
from heedful.attention.kernels.rows import AdditiveRows, rows_of_table, without_autocast
from heedful.attention.kernels.tiles import differentiable, plain_scores


@torch.library.custom_op("heedful::additive_scores", mutates_args=())
def _scores(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    whole = slice(0, a.shape[1]), slice(0, b.shape[1])
    with without_autocast(a):
        return tiles_for(a, b, v).scores(*whole)


@_scores.register_fake
def _(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], b.shape[1])


@torch.library.custom_op("heedful::additive_scores_backward", mutates_args=())
def _scores_backward(
    grad: Tensor, a: Tensor, b: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    with without_autocast(a):
        tiles = tiles_for(a, b, v)
        tiles.start_gradients()
        tiles.add_gradients(slice(0, a.shape[1]), slice(0, b.shape[1]), grad.to(a.dtype))
        return tiles.collect()


@_scores_backward.register_fake
def _(grad: Tensor, a: Tensor, b: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(a), torch.empty_like(b), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.kernel = chosen_kernel()


def _through_scores(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # second derivatives
        return differentiable(plain_scores(*ctx.saved_tensors), ctx.saved_tensors, grad)
    given = (grad, *ctx.saved_tensors)
    by: tuple[Tensor, ...]
    if torch.compiler.is_compiling():
        by = torch.ops.heedful.additive_scores_backward(*given)
        return by
    with use_kernel(ctx.kernel):  # On a GPU this is another thread than the forward pass's.
        by = torch.ops.heedful.additive_scores_backward(*given)
    return by


_scores.register_autograd(_through_scores, setup_context=_keep)


@torch.library.custom_op("heedful::additive_context", mutates_args=())
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


@_context.register_fake
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


@torch.library.custom_op("heedful::additive_context_backward", mutates_args=())
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


@_context_backward.register_fake
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


def _keep_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, value, v, allowed, scale, dropout, seed = inputs
    ctx.save_for_backward(a, b, value, v, allowed, seed)
    ctx.settings = scale, dropout


def _through_context(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, seed = ctx.saved_tensors
    given = (grad, *tensors, *ctx.settings, seed)
    by = torch.ops.heedful.additive_context_backward(*given)
    return (*by, None, None, None, None)


_context.register_autograd(_through_context, setup_context=_keep_context)
