"""Attention of short sequences with gradients: PyTorch operators around ``short.c``.

``torch.ops.heedful.short_attention`` and ``torch.ops.heedful.short_attention_backward``. Where C
cannot read the tensors (other types, devices and lengths) the plain formula computes the same.
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
    can_do,
    gradient_room,
    gradients_in_c,
    room,
)


def plain_weights(query: Tensor, key: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    """The softmax ``[B, H, Q, K]``; zeros where nothing is allowed."""
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
    if can_do(query, key, value, mask):
        return attention_in_c(query, key, value, mask, causal, scale)
    context, kept = room(query, key, value)
    weights = plain_weights(query, key, _allowed(query, key, mask, causal), scale)
    kept.zero_()[..., : query.shape[2]] = weights.mT
    return context.copy_(weights @ _for_heads(value, query)), kept


attention = Operator("short_attention", _attention)
"""The context, and the weights."""


@attention.operator.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    return room(query, key, value)


def _backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    given = grad, query, key, value, weights
    single = all(part.dtype == torch.float32 for part in given)
    if single and readable(grad, weights) and can_do(query, key, value, None):
        return gradients_in_c(*given, scale)
    found = gradient_room(query, key, value)
    for place, made in zip(found, _plain_gradients(*given, scale), strict=True):
        place.copy_(made)
    return found


gradients = Operator("short_attention_backward", _backward)
"""Those of query, key and value."""


@gradients.operator.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return gradient_room(query, key, value)


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


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.scale = inputs[-1]
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs[:3], output[1])


def _through(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *gradients(grad, *ctx.saved_tensors, ctx.scale), None, None, None


attention.register_autograd(_through, _keep)


def _keep_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


def _through_backward(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
    grad, query, key, value, weights = ctx.saved_tensors
    # What was masked has no weight; what has none by underflow has no derivative either.
    allowed = weights[..., : query.shape[2]].mT > 0

    def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return plain_weights(query, key, allowed, ctx.scale) @ _for_heads(value, query)

    return *second_derivatives(plain, (query, key, value), grad, by), None, None


gradients.register_autograd(_through_backward, _keep_backward)


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
        causal: whether a query sees no later key, the last query standing at the last key.
        scale: of the dot products.

    For tensors that :func:`~.short.can_do` accepts. Those that ``torch.func`` transforms go through
    the operator. Traced ones (``torch.compile``, ``make_fx``, export) do not come here: their
    graphs hold PyTorch's own attention, which every backend and file format knows, and which needs
    no guard on the lengths.
    """
    given = (query, key, value, mask, causal, scale)
    if any(is_transformed(part) for part in given[:4] if part is not None):
        context: Tensor = attention(*given)[0]
    else:
        context = _Short.apply(*given)  # type: ignore[no-untyped-call]
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
    """:func:`short_attention` where it is faster, without dropout; elsewhere ``otherwise``.

    Args:
        otherwise: takes what ``F.scaled_dot_product_attention`` does, and computes the same.
        query: ``[B, H, Q, D]``.
        key: ``[B, G, K, D]``.
        value: ``[B, G, K, E]``.
        attn_mask: booleans, or what is added to the scores.
        is_causal: as in :func:`short_attention`.
        dropout_p: share of the weights set to zero.
        scale: of the dot products.
        others: further arguments of ``otherwise``.
    """
    if not dropout_p and can_do(query, key, value, attn_mask):
        return short_attention(query, key, value, attn_mask, is_causal, scale)
    others |= {"is_causal": is_causal, "dropout_p": dropout_p, "scale": scale}
    return otherwise(query, key, value, attn_mask=attn_mask, **others)


class _Short(Function):
    """The operator for plain tensors, in half of its time where there is little to compute."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        context, weights = attention_in_c(*given)
        ctx.scale = given[-1]
        ctx.save_for_backward(*given[:3], weights)
        return context

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # The operator where these gradients are differentiated again, or mapped.
        seen = torch.is_grad_enabled() or not readable(grad)
        run: Callable[..., Any] = gradients if seen else gradients_in_c
        return *run(grad, *ctx.saved_tensors, ctx.scale), None, None, None
