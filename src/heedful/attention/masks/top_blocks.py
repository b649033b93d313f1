"""Each query attends to the blocks of keys that fit it best.

    s_tn = q_t · mean(k_i, i in block n),   t may attend to the k blocks n with the largest s_tn

Lu et al. 2025, "MoBA: Mixture of Block Attention for Long-Context LLMs", section 2.2, equations 5
and 6; Yuan et al. 2025, "Native Sparse Attention", section 3.3.2, selects blocks likewise.
Shapes: B batch, H heads, G key heads, Q queries, K keys, D width, N blocks.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.checking import check_inputs, heads_of_a_group
from heedful.attention.masks.algebra import Dense, Grid, Mask
from heedful.attention.places import First, places


class TopBlocks(Mask):
    """The blocks of keys that each query selects, its own and those before it; for causal masks.

    As :func:`top_blocks`, but for the queries and keys of the attention that it is given to:
    ``causal() & TopBlocks(64, 8)``. Long sequences without dropout are then computed without the
    scores of other blocks.

    Args:
        size: number of keys of a block.
        count: number of blocks that a query selects, its own included.

    Raises:
        ValueError: ``size`` or ``count`` is below 1.

    Source: Lu et al. 2025, section 2.2.

    Example:
        >>> from heedful.attention import attend, masks
        >>> key = torch.tensor([[9.0], [9.0], [0.0], [0.0], [1.0], [1.0]])  # [K, D]
        >>> attend(key, key, key, mask=masks.causal() & TopBlocks(2, 1))[-1]
        tensor([1.])
    """

    def __init__(self, size: int, count: int) -> None:
        _check(size, count)
        self.size, self.count = size, count

    def of_vectors(self, query: Tensor, key: Tensor, first: First | None) -> Mask:
        return top_blocks(query, key, size=self.size, count=self.count, first=first)

    def rule(self, grid: Grid) -> Tensor:
        raise ValueError("TopBlocks needs queries and keys: use it as the mask of an attention")


def top_blocks(
    query: Tensor,
    key: Tensor,
    *,
    size: int,
    count: int,
    causal: bool = True,
    lengths: Tensor | None = None,
    first: First | None = None,
) -> Mask:
    """The mask of the blocks of keys that each query selects; combine it with the other masks.

    With ``causal``, a query always selects the block of its own position, and no later one, so that
    its other blocks are in the past: ``masks.causal() & top_blocks(query, key, …)``. No gradient
    flows through the selection.

    Args:
        query: the queries of the attention, ``[.., H, Q, D]``.
        key: the keys, ``[.., G, K, D]``, with as many heads or fewer.
        size: number of keys of a block.
        count: number of blocks that a query selects, its own included.
        causal: whether queries select blocks of their own position and before.
        lengths: number of keys that exist in each entry, ``[B]``; all by default.
        first: position of the first query, as for :func:`heedful.attention.attend`.

    Raises:
        TypeError: a tensor is not floating-point.
        ValueError: ``size`` or ``count`` is below 1, or shapes do not match.

    Source: Lu et al. 2025, section 2.2.

    Example:
        >>> key = torch.tensor([[9.0], [9.0], [0.0], [0.0], [1.0], [1.0]])  # [K, D]
        >>> top_blocks(key[-1:], key, size=2, count=2).dense((1, 6)).long().tolist()
        [[1, 1, 0, 0, 1, 1]]
    """
    check_inputs(grouped=True, query=query, key=key)
    _check(size, count)
    with torch.no_grad():
        best, there, number = selected(
            query, key, size, count, causal=causal, lengths=lengths, first=first
        )
        chosen = best.new_zeros(*best.shape[:-1], number, dtype=torch.bool)
        chosen = chosen.scatter(-1, best, there)
        return Dense(chosen.repeat_interleave(size, -1)[..., : key.shape[-2]])


def _check(size: int, count: int) -> None:
    if size < 1 or count < 1:
        raise ValueError(f"size {size} and count {count} must be at least 1")


def selected(
    query: Tensor,
    key: Tensor,
    size: int,
    count: int,
    *,
    causal: bool = True,
    lengths: Tensor | None = None,
    first: First | None = None,
) -> tuple[Tensor, Tensor, int]:
    """The blocks that each query selects; arguments as for :func:`top_blocks`.

    Returns:
        The indices ``[.., H, Q, C]`` of C ≤ ``count`` blocks, the query's own first; whether the
        query may attend to them, of the same shape; and the number of blocks.
    """
    keys = key.shape[-2]
    key = key.repeat_interleave(heads_of_a_group(query, key), -3) if key.dim() > 2 else key
    scores = _fits(query, key, size, lengths)  # [.., H, Q, N]
    blocks = torch.arange(scores.shape[-1], device=key.device)
    if causal:
        start = keys - query.shape[-2] if first is None else first
        rows = torch.arange(query.shape[-2], device=key.device)
        own = (places(start, rows, query.dim() - 2) // size).unsqueeze(-1)
        scores = scores.masked_fill(blocks > own, float("-inf"))
        scores = scores.masked_fill(blocks == own, float("inf"))
    found, best = scores.topk(min(count, scores.shape[-1]), -1)
    return best, found > float("-inf"), scores.shape[-1]


def _fits(query: Tensor, key: Tensor, size: int, lengths: Tensor | None) -> Tensor:
    """The product of each query with the mean key of each block, ``[.., Q, N]``; −∞ without one."""
    keys = key.shape[-2]
    there = torch.ones(keys, dtype=torch.bool, device=key.device)
    if lengths is not None:
        if key.dim() < 3 or lengths.dim() != 1:
            raise ValueError(
                f"lengths {list(lengths.shape)}: expected [B], for keys {list(key.shape)}"
            )
        there = torch.arange(keys, device=key.device) < lengths.to(key.device).unsqueeze(-1)
        there = there.view(-1, *[1] * (key.dim() - 3), keys)
    rest = -keys % size
    wide = key.to(torch.promote_types(key.dtype, torch.float32))
    kept = F.pad(wide.masked_fill(~there.unsqueeze(-1), 0.0), (0, 0, 0, rest))
    number = F.pad(there, (0, rest)).unflatten(-1, (-1, size)).sum(-1)  # [.., N]
    means = kept.unflatten(-2, (-1, size)).sum(-2) / number.clamp(min=1).unsqueeze(-1)
    scores: Tensor = query.to(wide.dtype) @ means.transpose(-2, -1)
    return scores.masked_fill((number == 0).unsqueeze(-2), float("-inf"))
