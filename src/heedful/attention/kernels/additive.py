"""Additive attention at the price of a dot product: softmax(vᵀ tanh(q + k)) · values.

The formula as it is written is :func:`plain_scores`. Beside it, the same without ever holding
``[Q, K, D]`` numbers (:mod:`~.tiles`: in PyTorch, in C on the CPU, in Triton), and without ever
holding ``[Q, K]`` (:mod:`~.rows`).
"""

import copy
import math
from typing import Any

import torch
from torch import Tensor

from heedful.attention.checking import leading_sizes
from heedful.attention.kernels import operators
from heedful.attention.kernels.choosing import chosen_kernel, plainly, use_kernel
from heedful.attention.kernels.rows import AdditiveRows, dense_entries, rows_of_mask
from heedful.attention.kernels.tiles import differentiable, plain_scores
from heedful.attention.masks import Grid, Mask
from heedful.basics.addresses import is_plain, is_transformed


def additive_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """``vᵀ tanh(query + key)`` for projected ``query [.., Q, D]``, ``key [.., K, D]``, ``v [D]``.

    Holds ``[.., Q, K]`` numbers and no more, forward and backward, unless the whole is small.
    """
    if plainly(query, key, v):
        return plain_scores(query, key, v)
    entries = _Entries(query, key)
    a, b = entries.flat(query), entries.flat(key)
    scores: Tensor = operators.scores(a, b, v.to(a.dtype))
    return scores.view(*entries.leading, *scores.shape[1:]).to(query.dtype)


def additive_context(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    v: Tensor,
    mask: Mask | Tensor | None,
    grid: Grid,
    *,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> Tensor | None:
    """The context ``[.., Q, E]``, without ever holding all scores; None if plain is as good.

    Args:
        query: projected queries ``[.., Q, D]``.
        key: projected keys ``[.., K, D]``.
        value: ``[.., K, E]``.
        v: ``[D]``.
        mask: which query may attend to which key; no numbers to add.
        grid: what the mask is asked about.
        scale: of the scores, before the softmax.
        dropout: share of the weights set to zero.
    """
    if plainly(query, key, v, value):
        return None
    entries = _Entries(query, key, value)
    a, b, values = (entries.flat(part) for part in (query, key, value))
    # Drawn here, so that the same seed gives the same dropout, and backward can repeat it.
    seed = (
        torch.randint(1 << 62, (), dtype=torch.int64)
        if dropout
        else torch.zeros((), dtype=torch.int64)
    )
    given = a, b, values, v.to(a.dtype)
    if torch.compiler.is_compiling() or any(map(is_transformed, given)):
        allowed = dense_entries(mask, grid, entries.leading)
        context: Tensor = operators.context(*given, allowed, scale, dropout, seed)
    else:
        if torch.is_grad_enabled() and any(part.requires_grad for part in given):
            # Backward asks the mask again: what is written into its tensors meanwhile is not seen.
            mask = copy.deepcopy(mask)
        rows_of = rows_of_mask(mask, grid, entries.leading)
        context = _Context.apply(*given, rows_of, scale, dropout, seed)  # type: ignore[no-untyped-call]
    return context.view(*entries.leading, *context.shape[1:]).to(value.dtype)


class _Entries:
    """Leading dimensions made one, and single precision at least."""

    def __init__(self, *parts: Tensor) -> None:
        self.leading = leading_sizes(*parts)

    def flat(self, part: Tensor) -> Tensor:
        part = part if part.dtype == torch.float64 else part.float()
        whole = part.expand(*self.leading, *part.shape[-2:])
        return whole.reshape(math.prod(self.leading), *part.shape[-2:]).contiguous()


class _Context(torch.autograd.Function):
    """:class:`AdditiveRows` with a mask that stays an object, so that it is never whole."""

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
        # The plain formula where these gradients are differentiated again, or mapped.
        if torch.is_grad_enabled() or not is_plain(grads[0]):
            gradients = differentiable(given.plain(), (a, b, value, v), grads[0])
            return (*gradients, None, None, None, None)
        with use_kernel(ctx.kernel):  # On a GPU this is another thread than the forward pass's.
            return (*given.gradients(grads[0]), None, None, None, None)
