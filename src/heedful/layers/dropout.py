"""Dropout (Srivastava et al. 2014) as a module."""

from torch import Tensor, nn

from heedful.kernels.dropout import dropout


class Dropout(nn.Module):
    """:func:`dropout` in training, the identity in evaluation."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, hidden: Tensor) -> Tensor:
        """The same shape as ``hidden``."""
        if not self.training or not self.share:
            return hidden
        return dropout(hidden, self.share)
