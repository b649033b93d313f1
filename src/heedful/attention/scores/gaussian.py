"""Gaussian: e(q, k) = −‖q − k‖² / (2σ²).

With a softmax this is the kernel regression of Nadaraya 1964, "On Estimating Regression", and
Watson 1964, "Smooth Regression Analysis": the mean of the values, weighted by a Gaussian of how far
their keys are from the query.
"""

import math
from typing import Any

import torch
from torch import Tensor

from heedful.attention.checking import leading_sizes
from heedful.attention.scores.base import Score, require_same_width

_BLOCK = 2**20
"""How many numbers of the differences ``[.., q, K, D]`` the backward pass holds at a time."""


@torch.library.custom_op("heedful::squared_distances", mutates_args=())
def _squared_distances(query: Tensor, key: Tensor) -> Tensor:
    # Not ‖q‖² + ‖k‖² − 2qᵀk by a matrix product: near points far from the origin would lose all
    # digits of their distance.
    return torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist").square()


@_squared_distances.register_fake
def _(query: Tensor, key: Tensor) -> Tensor:
    leading = leading_sizes(query, key)
    return query.new_empty(*leading, query.shape[-2], key.shape[-2])


@torch.library.custom_op("heedful::squared_distances_backward", mutates_args=())
def _squared_distances_backward(
    gradient: Tensor, query: Tensor, key: Tensor
) -> tuple[Tensor, Tensor]:
    # Block by block: torch.cdist's own backward on a GPU holds all differences [.., Q, K, D].
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


@_squared_distances_backward.register_fake
def _(gradient: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    leading = gradient.shape[:-2]
    return query.new_empty(*leading, *query.shape[-2:]), key.new_empty(*leading, *key.shape[-2:])


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    query, key = ctx.saved_tensors
    by_query, by_key = _squared_distances_backward(gradient, query, key)
    return by_query.sum_to_size(query.shape), by_key.sum_to_size(key.shape)


_squared_distances.register_autograd(_backward, setup_context=_keep)


def squared_distances(query: Tensor, key: Tensor) -> Tensor:
    """``‖q − k‖²``, ``[.., Q, K]``, of ``query [.., Q, D]`` and ``key [.., K, D]``.

    Taken from the differences, so that it is as exact as they are, without holding them: memory is
    that of the result, forward and backward. Half precision is compared in float32. It can be
    differentiated once.
    """
    dtype = torch.promote_types(query.dtype, key.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    distances: Tensor = _squared_distances(query.to(wide), key.to(wide))
    return distances.to(dtype)


class Gaussian(Score):
    """Squared distance between query and key as a score: the nearer, the higher; at most 0.

    Args:
        width: σ, above 0, in the queries' own unit: keys further away than a few widths have next
            to no weight beside a near one.

    Raises:
        ValueError: the width is not above 0 or not finite; at the call, query and key differ in
            their width.

    Example:
        >>> import torch
        >>> Gaussian(width=2.0)(torch.zeros(1, 2), torch.tensor([[0.0, 2.0], [0.0, 4.0]]))
        tensor([[-0.5000, -2.0000]])
    """

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        if not 0 < width < math.inf:
            raise ValueError(f"width must be above 0 and finite, not {width}")
        self.width = width

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        require_same_width(query, key)
        return squared_distances(query, key) * (-0.5 / self.width**2)
