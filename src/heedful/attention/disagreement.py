"""Disagreement: P = ‖A Aᵀ − I‖²_F, a loss that keeps several attentions apart.

Lin et al. 2017, "A Structured Self-Attentive Sentence Embedding", section 2.2, equation 8 (there
the "penalization term"). Rows that sum to one have a small P when each attends to few keys, and no
two to the same ones.
"""

import torch
from torch import Tensor

from heedful.basics.device import without_autocast


def disagreement(weights: Tensor) -> Tensor:
    """``‖A Aᵀ − I‖²_F`` of each batch entry, summed over the pairs of rows.

    Args:
        weights: ``A [.., R, K]``: R attentions (hops, heads) over the same K keys.

    Returns:
        ``[..]``, at least 0; for a loss, take the mean and multiply by a factor. Half precision is
        computed and returned in float32. A row that attends to nothing adds the constant 1, with
        zero gradients.

    Raises:
        TypeError: the weights are not of floating point.
        ValueError: the weights have fewer than two dimensions.

    The weights of :class:`~heedful.attention.StructuredSelfAttention`, ``[B, 1, hops, K]``, can be
    passed unchanged. For the heads of multi-head attention, ``[B, H, Q, K]``, each query is a
    separate entry: move Q before the heads, and exclude padding queries from the mean.

    Example:
        >>> weights = torch.eye(3).expand(2, 4, 3, 3)  # [B, H, Q, K]: four heads, all the same
        >>> disagreement(weights.transpose(1, 2))  # [B, Q]
        tensor([[12., 12., 12.],
                [12., 12., 12.]])
    """
    if not weights.is_floating_point():
        raise TypeError(f"weights must be of floating point, not {weights.dtype}")
    if weights.dim() < 2:
        raise ValueError(f"weights has shape {list(weights.shape)}: expected [.., rows, keys]")
    wide = weights.float() if weights.dtype in (torch.bfloat16, torch.float16) else weights
    with without_autocast(weights):
        gram = wide @ wide.transpose(-2, -1)  # [.., R, R]
        identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        return (gram - identity).square().sum((-2, -1))
