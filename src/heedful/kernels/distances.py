"""Squared distances ``‖q − k‖²`` of all pairs, without storing their differences."""

import math
from typing import Any

import torch
from torch import Tensor

from heedful.basics.addresses import forward_mode
from heedful.basics.shapes import leading_sizes
from heedful.kernels.operators import Operator, mapped_first, second_derivatives

_BLOCK = 2**20
"""Elements of the differences ``[.., q, K, D]`` that the backward pass stores at a time."""


def _squared_distances(query: Tensor, key: Tensor) -> Tensor:
    # ‖q‖² + ‖k‖² − 2qᵀk would lose all precision for close points far from the origin.
    return torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist").square()


_distances = Operator("squared_distances", _squared_distances)


@_distances.operator.register_fake
def _(query: Tensor, key: Tensor) -> Tensor:
    leading = leading_sizes(query, key)
    return query.new_empty(*leading, query.shape[-2], key.shape[-2])


def _squared_distances_backward(
    gradient: Tensor, query: Tensor, key: Tensor
) -> tuple[Tensor, Tensor]:
    # In blocks: the backward pass of torch.cdist on a GPU stores all differences [.., Q, K, D].
    leading = gradient.shape[:-2]
    query, key = (part.expand(*leading, *part.shape[-2:]) for part in (query, key))
    rows = max(1, _BLOCK // max(1, math.prod(leading) * key.shape[-2] * key.shape[-1]))
    by_query, by_key = [], torch.zeros_like(key, memory_format=torch.contiguous_format)
    for some, scores in zip(query.split(rows, -2), gradient.split(rows, -2), strict=True):
        pulled = some.unsqueeze(-2) - key.unsqueeze(-3)  # [.., q, K, D]
        pulled *= 2 * scores.unsqueeze(-1)
        by_query.append(pulled.sum(-2))
        by_key -= pulled.sum(-3)
    return torch.cat(by_query, -2), by_key


_gradients = Operator("squared_distances_backward", _squared_distances_backward)


@_gradients.operator.register_fake
def _(gradient: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    leading = gradient.shape[:-2]
    return query.new_empty(*leading, *query.shape[-2:]), key.new_empty(*leading, *key.shape[-2:])


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    query, key = ctx.saved_tensors
    by_query, by_key = _gradients(gradient, query, key)
    return by_query.sum_to_size(query.shape), by_key.sum_to_size(key.shape)


def _backward_twice(ctx: Any, *by: Tensor) -> tuple[Tensor, ...]:
    gradient, query, key = ctx.saved_tensors
    leading = gradient.shape[:-2]
    whole = [part.expand(*leading, *part.shape[-2:]) for part in (query, key)]
    by_gradient, *others = second_derivatives(plain_distances, tuple(whole), gradient, by)
    by_query, by_key = (
        found.sum_to_size(part.shape) for found, part in zip(others, (query, key), strict=True)
    )
    return by_gradient, by_query, by_key


def plain_distances(query: Tensor, key: Tensor) -> Tensor:
    """The plain reference, which stores all differences ``[.., Q, K, D]``."""
    return (query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)


_distances.register_autograd(_backward, _setup_context)
_gradients.register_autograd(_backward_twice, _setup_context)


def _leading(info: Any, places: tuple[int | None, ...], given: tuple[Tensor, ...]) -> list[Tensor]:
    """Move the mapped dimension to the front and give all tensors the same number of dimensions."""
    parts = [mapped_first(*one, info.batch_size) for one in zip(given, places, strict=True)]
    most = max(part.dim() for part in parts)
    return [part[(slice(None), *(None,) * (most - part.dim()))] for part in parts]


@_distances.operator.register_vmap
def _(info: Any, places: tuple[int | None, ...], *given: Tensor) -> tuple[Any, Any]:
    return _distances.operator(*_leading(info, places, given)), 0


@_gradients.operator.register_vmap
def _(info: Any, places: tuple[int | None, ...], *given: Tensor) -> tuple[Any, Any]:
    return _gradients.operator(*_leading(info, places, given)), (0, 0)


def squared_distances(query: Tensor, key: Tensor) -> Tensor:
    """``‖q − k‖²``, ``[.., Q, K]``, of ``query [.., Q, D]`` and ``key [.., K, D]``.

    Distances are computed from the differences, which preserves their precision, but the
    differences are not stored: forward and backward need memory for the result only. Second
    derivatives and forward-mode gradients store the differences ``[.., Q, K, D]``. Half precision
    is converted to float32.
    """
    dtype = torch.promote_types(query.dtype, key.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    given = query.to(wide), key.to(wide)
    run = plain_distances if forward_mode(*given) else _distances
    distances: Tensor = run(*given)
    return distances.to(dtype)
