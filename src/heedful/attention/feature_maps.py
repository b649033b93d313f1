"""Feature maps φ for linearized attention: similarity(q, k) = φ(q)ᵀφ(k), with φ ≥ 0.

Any callable ``[.., L, D] -> [.., L, F]`` with non-negative results can be used; this module has the
two usual ones.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

FeatureMap = Callable[[Tensor], Tensor]
"""Vectors ``[.., L, D]`` to features ``[.., L, F]``, none of them negative."""


class EluPlusOne(nn.Module):
    """φ(x) = elu(x) + 1: x + 1 above 0, exp(x) below; always above 0.

    Katharopoulos, Vyas, Pappas, Fleuret 2020, "Transformers are RNNs", section 3.2.1, equation 7.

    Example:
        >>> EluPlusOne()(torch.tensor([-100.0, 0.0, 2.0]))
        tensor([3.7835e-44, 1.0000e+00, 3.0000e+00])
    """

    def forward(self, vectors: Tensor) -> Tensor:
        # exp(x) instead of (exp(x) − 1) + 1, which loses all digits if x is far below 0.
        return torch.where(vectors > 0, vectors + 1, vectors.clamp(max=0).exp())


class ReluFeatures(nn.Module):
    """φ(x) = max(x, 0): features may be exactly zero, so that a key can have no weight.

    A query that shares no feature with any key has context 0. Kasai et al. 2021, "Finetuning
    Pretrained Transformers into RNNs", section 2.2 (there after a learned matrix, which the
    projections of :class:`~heedful.attention.LinearAttention` are).

    Example:
        >>> ReluFeatures()(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([0., 0., 2.])
    """

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors.relu()
