"""The coverage loss: how much attention keys receive again.

See, Liu, Manning 2017, "Get To The Point: Summarization with Pointer-Generator Networks", section
2.3, equation 12.
"""

from torch import Tensor


def coverage_loss(weights: Tensor) -> Tensor:
    """``Σ_i min(a_i^t, c_i^t)`` for each step t, with ``c^t = Σ_(t' < t) a^t'``; ``[.., T]``.

    At most 1 for weights that sum to 1; 0 at the first step.

    Args:
        weights: ``[.., T, K]``, such as those of a watched module.

    Raises:
        ValueError: the weights have no dimensions of steps and keys.

    Source: See et al. 2017, equation 12.

    Example:
        >>> import torch
        >>> coverage_loss(torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]))
        tensor([0.0000, 0.5000, 0.5000])
    """
    if weights.dim() < 2:
        raise ValueError(f"weights have shape {list(weights.shape)}: expected [.., steps, keys]")
    covered = weights.cumsum(-2) - weights
    return weights.minimum(covered).sum(-1)
