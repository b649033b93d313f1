"""Additive attention, softmax(vᵀ tanh(q + k)) · values, at the cost of a dot product.

:func:`plain_scores` is the plain reference. :mod:`~.additive_tiles` (PyTorch, C on the CPU, Triton)
computes the same without storing a tensor ``[Q, K, D]``, and :mod:`~.additive_rows` without
storing a tensor ``[Q, K]``.
"""

import math
from typing import Any

import torch
from torch import Tensor

from heedful.basics.addresses import is_plain, is_transformed
from heedful.basics.shapes import leading_sizes
from heedful.kernels import additive_operators as operators
from heedful.kernels.additive_rows import AdditiveRows, RowsOf
from heedful.kernels.additive_selection import chosen_kernel, plain_is_faster, use_kernel
from heedful.kernels.additive_tiles import differentiable, plain_scores


def additive_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """``vᵀ tanh(query + key)`` for projected ``query [.., Q, D]``, ``key [.., K, D]``, ``v [D]``.

    Forward and backward need memory for ``[.., Q, K]`` values only, except for small inputs.
    """
    if plain_is_faster(query, key, v):
        return plain_scores(query, key, v)
    entries = _Entries(query, key)
    a, b = entries.flat(query), entries.flat(key)
    scores: Tensor = operators.scores(a, b, v.to(a.dtype))
    return scores.view(*entries.leading, *scores.shape[1:]).to(query.dtype)


def additive_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    v: Tensor,
    rows_of: RowsOf,
    *,
    scale: float,
    dropout: float,
) -> Tensor:
    """The context ``[.., Q, E]``, without storing all scores.

    Args:
        query: projected queries ``[.., Q, D]``.
        key: projected keys ``[.., K, D]``.
        value: ``[.., K, E]``.
        v: ``[D]``.
        rows_of: returns the mask of some rows, with all leading dimensions flattened to one;
            called again in the backward pass.
        scale: factor of the scores, before the softmax.
        dropout: probability that a weight is set to zero.
    """
    entries = _Entries(query, key, value)
    a, b, values = (entries.flat(part) for part in (query, key, value))
    # Drawn here, so that dropout depends on the seed only and the backward pass can repeat it.
    seed = (
        torch.randint(1 << 62, (), dtype=torch.int64)
        if dropout
        else torch.zeros((), dtype=torch.int64)
    )
    given = a, b, values, v.to(a.dtype)
    if torch.compiler.is_compiling() or any(map(is_transformed, given)):
        context: Tensor = operators.context(*given, rows_of(None), scale, dropout, seed)
    else:
        context = _Context.apply(*given, rows_of, scale, dropout, seed)  # type: ignore[no-untyped-call]
    return context.view(*entries.leading, *context.shape[1:]).to(value.dtype)


class _Entries:
    """Flattens leading dimensions to one; converts half precision to float32."""

    def __init__(self, *parts: Tensor) -> None:
        self.leading = leading_sizes(*parts)

    def flat(self, part: Tensor) -> Tensor:
        part = part if part.dtype == torch.float64 else part.float()
        whole = part.expand(*self.leading, *part.shape[-2:])
        return whole.reshape(math.prod(self.leading), *part.shape[-2:]).contiguous()


class _Context(torch.autograd.Function):
    """:class:`AdditiveRows` with a mask object, so that the whole mask is never stored."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, rows_of, scale, dropout, seed = given
        ctx.save_for_backward(*tensors, seed)
        ctx.settings = rows_of, scale, dropout
        ctx.kernel = chosen_kernel()
        return AdditiveRows(*given).context()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, b, value, v, seed = ctx.saved_tensors
        rows_of, scale, dropout = ctx.settings
        given = AdditiveRows(a, b, value, v, rows_of, scale, dropout, seed)
        # Second derivatives and vmap use the plain formula.
        if torch.is_grad_enabled() or not is_plain(grads[0]):
            gradients = differentiable(given.plain(), (a, b, value, v), grads[0])
            return (*gradients, None, None, None, None)
        with use_kernel(
            ctx.kernel
        ):  # On a GPU, the backward pass runs in another thread than the forward pass.
            return (*given.gradients(grads[0]), None, None, None, None)
