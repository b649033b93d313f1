"""How far apart the attention heads of a trace are: the Jensen–Shannon distance of their weights.

Clark et al. 2019, "What Does BERT Look At?", section 6, compares heads by the divergence; its
square root, a metric, is comparable between models and between texts.
Shapes: N heads of all maps, H heads of one map, Q queries, K keys.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.attention.divergences import jensen_shannon_distance
from heedful.basics.errors import UserError
from heedful.inference.trace import AttentionMap, Trace


class HeadDistances(NamedTuple):
    """The distances of all heads that attend between the same axes."""

    heads: list[str]
    """``map.head``, both counted from 1: ``2.3`` is the third head of the second of ``maps``."""
    maps: list[str]
    """The names of the maps, in the order of the trace."""
    matrix: Tensor
    """``[N, N]``, symmetric, from 0 (equal weights) to 1 (no common key); 0 on the diagonal."""


def pair_distances(weights: Tensor) -> Tensor:
    """The mean over queries of the distances of ``weights [N, Q, K]``, a matrix ``[N, N]``.

    Negative weights count as 0, and rows are normalized. A row of zeros has the distance 0 from
    another row of zeros, and √½ from any other row.
    """
    shares = normalized(weights)
    rows = [jensen_shannon_distance(own, shares).mean(1) for own in shares]
    matrix = torch.stack(rows)
    return matrix.fill_diagonal_(0.0)


def normalized(weights: Tensor) -> Tensor:
    """``weights [.., K]`` in float64 as distributions; rows without positive weights are zeros."""
    positive = weights.double().clamp(min=0)
    total = positive.sum(-1, keepdim=True)
    return positive / total.clamp(min=torch.finfo(total.dtype).tiny)


def head_distances(trace: Trace, name: str | None = None) -> HeadDistances:
    """The distances of the heads of all maps that have the axes of one of them.

    Args:
        trace: the trace; its rollout and gradients are not compared.
        name: a map whose axes are meant; by default, the last map between two different axes, or
            the last map if there is none.

    Raises:
        UserError: there is no such map, or its weights have one head only.

    Example:
        >>> weights = torch.eye(4).view(2, 2, 4)
        >>> trace = Trace.of({"a": ["x", "y"], "b": list("klmn")}, {"m": ("a", "b", weights)})
        >>> head_distances(trace).matrix
        tensor([[0., 1.],
                [1., 0.]], dtype=torch.float64)
    """
    maps = [one for one in trace.maps if one.kind == "weights"]
    if not maps:
        raise UserError("this model has no attention, so no heads can be compared")
    across = [one for one in maps if one.query_axis != one.key_axis] or maps
    chosen = across[-1] if name is None else trace[name]
    same = [one for one in maps if _axes(one) == _axes(chosen)]
    weights = torch.cat([one.rows for one in same])
    if len(weights) < 2:
        raise UserError(
            f"{chosen.name} is the only head between its axes; a distance needs two heads"
        )
    labels = [
        f"{number}.{head}"
        for number, one in enumerate(same, start=1)
        for head in range(1, len(one.rows) + 1)
    ]
    return HeadDistances(labels, [one.name for one in same], pair_distances(weights))


def _axes(one: AttentionMap) -> tuple[str, str, str | None]:
    return one.query_axis, one.key_axis, one.step_axis
