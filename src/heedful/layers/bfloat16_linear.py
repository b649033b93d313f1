"""Linear maps with weights in bfloat16, for models that search on the CPU.

With few rows, reading the weights takes most of the time, and half the bytes take almost half the
time. A processor with bfloat16 products also computes products of many rows faster. Sums are in
float32.
"""

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from heedful.basics.device import has_fast_bfloat16
from heedful.layers.search_copy import search_copy

Model = TypeVar("Model", bound=nn.Module)


class Bfloat16Linear(nn.Module):
    """``W x + b`` with W rounded to bfloat16, in place of an ``nn.Linear``, in evaluation.

    If the processor multiplies bfloat16, inputs and results of this module are rounded as well; the
    fused step (:mod:`heedful.inference.fusing`) keeps its results in float32. Otherwise only the
    weights are rounded. There is a gradient for the input, but none for the weights.

    Args:
        weight: ``[out, in]``.
        bias: ``[out]``, which is not rounded; or None.

    Example:
        >>> plain = nn.Linear(4, 3)
        >>> Bfloat16Linear(plain.weight, plain.bias)(torch.ones(2, 4)).shape
        torch.Size([2, 3])
    """

    bias: Tensor | None
    rounded: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_buffer("rounded", weight.detach().to(torch.bfloat16))
        self.register_buffer("bias", None if bias is None else bias.detach())

    @property
    def weight(self) -> Tensor:
        """The rounded weights in float32 ``[out, in]``, a new tensor."""
        return self.rounded.float()

    def now(self) -> "Bfloat16Linear":
        """The map with its current weights, as for ``NormalisedLinear``."""
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """``[.., in] -> [.., out]``, float32."""
        if not has_fast_bfloat16(inputs.device):
            return linear(inputs, self.weight, self.bias)
        result = linear(inputs.to(torch.bfloat16), self.rounded).float()
        return result if self.bias is None else result + self.bias


def bfloat16_copy(model: Model) -> Model:
    """A copy of a model for search, with rounded weights; see
    :func:`heedful.layers.search_copy.search_copy`."""
    return search_copy(model, Bfloat16Linear)
