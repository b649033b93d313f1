"""Disagreement: P = ‖A Aᵀ − I‖²_F, a loss that keeps several attentions apart.

Lin et al. 2017, "A Structured Self-Attentive Sentence Embedding", section 2.2, equation 8 (there
the "penalization term"). Rows that sum to one have a small P when each attends to few keys, and no
two to the same ones.
"""

import torch
from torch import Tensor


def disagreement(weights: Tensor) -> Tensor:
    """``‖A Aᵀ − I‖²_F``, a number an entry: summed over the pairs of rows, not over the batch.

    Args:
        weights: ``A [.., R, K]``: R attentions (hops, heads) over the same K keys.

    Returns:
        ``[..]``, at least 0; take its mean and a factor of your own for a loss. Half precision is
        compared in float32, and the result is float32 then. A row that attends to nothing adds the
        constant 1, with zero gradients.

    Raises:
        TypeError: the weights are not of floating point.
        ValueError: the weights have fewer than two dimensions.

    For hops, the weights that :class:`~heedful.attention.StructuredSelfAttention` shows,
    ``[B, 1, hops, K]``, are ready as they are. For the heads of multi-head attention,
    ``[B, H, Q, K]``, each query is an entry of its own: move Q before the heads, and leave the
    queries that are padding out of the mean.

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
    with torch.autocast(weights.device.type, enabled=False):
        gram = wide @ wide.transpose(-2, -1)  # [.., R, R]
        identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        return (gram - identity).square().sum((-2, -1))
