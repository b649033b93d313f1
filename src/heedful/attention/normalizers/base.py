"""What every normalizer has in common."""

from torch import Tensor, nn


class Normalizer(nn.Module):
    """Scores ``[.., Q, K]`` to weights of the same shape; a masked weight is exactly zero."""

    is_softmax = False
    """Whether the fused kernels, which know the softmax alone, may stand in for this."""

    def forward(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Weights ``[.., Q, K]``.

        Args:
            scores: ``[.., Q, K]``.
            allowed: boolean, broadcastable to the scores; true = may attend. None allows all.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how to normalize")
