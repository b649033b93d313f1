"""Dropout with cheap random numbers on the CPU.

Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting".
PyTorch draws 64 random bits a number there; sixteen are enough, and four times cheaper.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_STEPS = 1 << 16


def dropout(hidden: Tensor, share: float) -> Tensor:
    """Set each number to zero with probability ``share``, scale the others by ``1 / (1 - share)``.

    On the CPU ``share`` is rounded to 1/65,536, and the scale with it, so that the mean stays.

    Args:
        hidden: of any shape.
        share: in [0, 1).
    """
    if hidden.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(hidden, share)
    dropped = round(share * _STEPS)
    count = hidden.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    bits = words.view(torch.int16)[:count].view(hidden.shape)
    kept = bits >= dropped - _STEPS // 2
    return hidden * (kept * (_STEPS / (_STEPS - dropped))).to(hidden.dtype)


class Dropout(nn.Module):
    """:func:`dropout` in training, nothing in evaluation."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, hidden: Tensor) -> Tensor:
        """The same shape as ``hidden``."""
        if not self.training or not self.share:
            return hidden
        return dropout(hidden, self.share)
