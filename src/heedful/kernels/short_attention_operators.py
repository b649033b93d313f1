"""Attention of short sequences with gradients, as PyTorch operators.

``torch.ops.heedful.short_attention`` and ``torch.ops.heedful.short_attention_backward``. If C does
not support the tensors (dtype, device, length), the plain formula is used.
Shapes as in :mod:`~.short_attention`; weights are ``[B, H, K, R]``, R ≥ the number of queries.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from heedful.basics.addresses import is_transformed, readable
from heedful.kernels.operators import Operator, folded, second_derivatives, unfolded
from heedful.kernels.short_attention import (
    attention_in_c,
    empty_gradients,
    empty_outputs,
    gradients_in_c,
    is_supported,
)


def plain_weights(query: Tensor, key: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    """The softmax ``[B, H, Q, K]``; zeros for a query that may attend to no key."""
    scores = scale * query @ _for_heads(key, query).mT
    if allowed is None:
        return torch.softmax(scores, -1)
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, -1).masked_fill(~allowed, 0.0)


def _for_heads(part: Tensor, query: Tensor) -> Tensor:
    """``[B, G, K, D]`` as ``[B, H, K, D]``."""
    return part.repeat_interleave(query.shape[1] // part.shape[1], 1)


def _allowed(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    if not causal:
        return mask
    queries, keys = query.shape[2], key.shape[2]
    earlier = torch.ones(queries, keys, dtype=torch.bool, device=query.device)
    earlier = earlier.tril(keys - queries)
    return earlier if mask is None else earlier & mask


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    if is_supported(query, key, value, mask):
        return attention_in_c(query, key, value, mask, causal, scale)
    context, kept = empty_outputs(query, key, value)
    weights = plain_weights(query, key, _allowed(query, key, mask, causal), scale)
    kept.zero_()[..., : query.shape[2]] = weights.mT
    return context.copy_(weights @ _for_heads(value, query)), kept


attention = Operator("short_attention", _attention)
"""The context, and the weights."""


@attention.operator.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    return empty_outputs(query, key, value)


def _backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    given = grad, query, key, value, weights
    single = all(part.dtype == torch.float32 for part in given)
    if single and readable(grad, weights) and is_supported(query, key, value, None):
        return gradients_in_c(*given, scale)
    found = empty_gradients(query, key, value)
    for place, made in zip(found, _plain_gradients(*given, scale), strict=True):
        place.copy_(made)
    return found


gradients = Operator("short_attention_backward", _backward)
"""The gradients of query, key and value."""


@gradients.operator.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return empty_gradients(query, key, value)


def _plain_gradients(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    weights = weights[..., : query.shape[2]].mT
    through = grad @ _for_heads(value, query).mT
    by_scores = scale * weights * (through - (weights * through).sum(-1, keepdim=True))
    groups = key.shape[1]
    by_key, by_value = (
        part.unflatten(1, (groups, -1)).sum(2) for part in (by_scores.mT @ query, weights.mT @ grad)
    )
    return by_scores @ _for_heads(key, query), by_key, by_value


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.scale = inputs[-1]
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs[:3], output[1])


def _autograd_backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *gradients(grad, *ctx.saved_tensors, ctx.scale), None, None, None


attention.register_autograd(_autograd_backward, _setup_context)


def _setup_context_of_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


def _second_derivatives(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
    grad, query, key, value, weights = ctx.saved_tensors
    # Masked keys have weight zero; a weight that underflowed to zero has no derivative either.
    allowed = weights[..., : query.shape[2]].mT > 0

    def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return plain_weights(query, key, allowed, ctx.scale) @ _for_heads(value, query)

    return *second_derivatives(plain, (query, key, value), grad, by), None, None


gradients.register_autograd(_second_derivatives, _setup_context_of_backward)


@attention.operator.register_vmap
def _(info: Any, places: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
    *tensors, mask, causal, scale = given
    size = info.batch_size
    parts = [folded(*one, size) for one in zip(tensors, places[:3], strict=True)]
    if mask is not None:
        place = places[3]
        mask = mask.unsqueeze(0) if place is None else mask.movedim(place, 0)
        mask = mask[(slice(None), *(None,) * (5 - mask.dim()))]  # [1 or size, B or 1, H, Q, K]
        batch = len(parts[0]) // size
        mask = mask.expand(size, batch, *mask.shape[2:]).flatten(0, 1)
    return unfolded(attention.operator(*parts, mask, causal, scale), size)


@gradients.operator.register_vmap
def _(info: Any, places: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
    parts = [folded(*one, info.batch_size) for one in zip(given[:5], places[:5], strict=True)]
    return unfolded(gradients.operator(*parts, given[5]), info.batch_size)


def short_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """The context ``[B, H, Q, E]`` of ``softmax(scale · query · keyᵀ)``.

    Args:
        query: ``[B, H, Q, D]``.
        key: ``[B, G, K, D]``.
        value: ``[B, G, K, E]``.
        mask: booleans that broadcast to ``[B, H, Q, K]``, true = may attend.
        causal: whether queries attend to earlier keys only; the last query has the position of the
            last key.
        scale: factor of the dot products.

    Requires :func:`~.short_attention.is_supported`. Tensors under a ``torch.func`` transform use
    the operator. Traced tensors (``torch.compile``, ``make_fx``, export) must not be passed: their
    graphs contain PyTorch's own attention, which all backends and export formats support and which
    needs no guard on the lengths.
    """
    given = (query, key, value, mask, causal, scale)
    if any(is_transformed(part) for part in given[:4] if part is not None):
        context: Tensor = attention(*given)[0]
    else:
        context = _ShortAttention.apply(*given)  # type: ignore[no-untyped-call]
    return context


def short_attention_or(
    otherwise: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float,
    **others: Any,
) -> Tensor:
    """:func:`short_attention` if it is faster and there is no dropout; otherwise ``otherwise``.

    Args:
        otherwise: has the arguments and the result of ``F.scaled_dot_product_attention``.
        query: ``[B, H, Q, D]``.
        key: ``[B, G, K, D]``.
        value: ``[B, G, K, E]``.
        attn_mask: booleans, or a bias that is added to the scores.
        is_causal: as in :func:`short_attention`.
        dropout_p: probability that a weight is set to zero.
        scale: factor of the dot products.
        others: further arguments of ``otherwise``.
    """
    if not dropout_p and is_supported(query, key, value, attn_mask):
        return short_attention(query, key, value, attn_mask, is_causal, scale)
    others |= {"is_causal": is_causal, "dropout_p": dropout_p, "scale": scale}
    return otherwise(query, key, value, attn_mask=attn_mask, **others)


class _ShortAttention(Function):
    """The operator for plain tensors; for small inputs, it takes half the time."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        context, weights = attention_in_c(*given)
        ctx.scale = given[-1]
        ctx.save_for_backward(*given[:3], weights)
        return context

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Second derivatives and vmap need the operator.
        seen = torch.is_grad_enabled() or not readable(grad)
        run: Callable[..., Any] = gradients if seen else gradients_in_c
        return *run(grad, *ctx.saved_tensors, ctx.scale), None, None, None
