"""Linear maps in int8 for search: weights are quantised in advance, inputs dynamically per row.

With integers Q for a matrix's rows and q for an input x, each with its own scale:

    t_o = max |W_o| / 127     Q_o = round(W_o / t_o)
    s = max |x| / L           q = round(x / s)            y_o = s t_o (Q_o · q) + b_o

Dettmers et al. 2022, "LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale", section
3.1. A row's scale depends only on that row, so that its result does not depend on the batch. L is
127 if the processor adds 8-bit products exactly (VNNI), and 63 if the sum of two products could
overflow 16 bits; :func:`largest_input` tests this.
"""

import warnings
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from heedful.basics.errors import UserError
from heedful.layers.search_copy import search_copy

LARGEST_WEIGHT = 127
_SMALLEST = 1e-30
"""The lower bound of a row's scale, which avoids a division by zero."""

Model = TypeVar("Model", bound=nn.Module)


class Int8Linear(nn.Module):
    """``W x + b`` in int8, in place of an ``nn.Linear``; on the CPU, in evaluation.

    The gradient for the input is that of the map without rounding; the weights have none.

    Args:
        weight: ``[out, in]``.
        bias: ``[out]``; or None.

    Raises:
        UserError: PyTorch has no int8 products for this processor.

    Example:
        >>> plain = nn.Linear(4, 3)
        >>> Int8Linear(plain.weight, plain.bias)(torch.ones(2, 4)).shape
        torch.Size([2, 3])
    """

    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.largest = largest_input()
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.packed = _pack(weight.detach())

    @property
    def weight(self) -> Tensor:
        """The dequantised weights ``[out, in]``, a new tensor."""
        weight: Tensor = torch.ops.quantized.linear_unpack(self.packed)[0].dequantize()
        return weight

    def whole(self) -> tuple[Tensor, Tensor]:
        """The quantised weights, int8 ``[out, in]``, and the scales of their rows ``[out]``."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*quantized tensor creation functions")
            weight = torch.ops.quantized.linear_unpack(self.packed)[0]
        return weight.int_repr(), weight.q_per_channel_scales().float()

    def now(self) -> "Int8Linear":
        """The map with its current weights, as for :class:`NormalisedLinear`."""
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """``[.., in] -> [.., out]``, float32."""
        if inputs.requires_grad and torch.is_grad_enabled():
            result: Tensor = _Unrounded.apply(inputs, self)  # type: ignore[no-untyped-call]
            return result
        return self.product(inputs)

    def product(self, inputs: Tensor) -> Tensor:
        """``[.., in] -> [.., out]`` without a gradient."""
        rows = inputs.abs().amax(-1, keepdim=True).clamp_min_(_SMALLEST)
        result = _product(inputs / rows, self.largest, self.packed)
        if self.bias is None:
            return result.mul_(rows)
        return torch.addcmul(self.bias, result, rows, out=result)


class _Unrounded(torch.autograd.Function):
    """An :class:`Int8Linear` whose gradient ignores the rounding."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, layer: Int8Linear) -> Tensor:
        ctx.layer = layer
        return layer.product(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] @ ctx.layer.weight, None


def int8_copy(model: Model) -> Model:
    """A copy of a model for search, in int8; see :func:`heedful.layers.search_copy.search_copy`.

    Raises:
        UserError: PyTorch has no int8 products for this processor.
    """
    return search_copy(model, Int8Linear)


def _pack(weight: Tensor) -> Any:
    """The quantised weights of ``[out, in]`` and their scales, packed for PyTorch's kernel."""
    scales = weight.abs().amax(1).clamp_min(_SMALLEST) / LARGEST_WEIGHT
    whole = (weight / scales.unsqueeze(1)).round().to(torch.int8)
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():
        # PyTorch 2.13 deprecates this API, but its successor has no such product yet.
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions")
        quantised = torch._make_per_channel_quantized_tensor(whole, scales.double(), zeros, 0)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        return torch.ops.quantized.linear_prepack(quantised, None)
    finally:
        torch.backends.quantized.engine = before


def _product(inputs: Tensor, largest: int, packed: Any) -> Tensor:
    """Products of ``inputs`` in [-1, 1], which are rounded to multiples of 1 / ``largest``."""
    result: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
        inputs, 1 / largest, largest + 1, packed
    )
    return result


@lru_cache(maxsize=1)
def largest_input() -> int:
    """The largest integer of an input for which sums of products are exact here: 127 or 63.

    Raises:
        UserError: PyTorch has no int8 products for this processor.
    """
    ones, exact = torch.ones(8, 64), torch.full((8, 8), 64.0)
    try:
        packed = _pack(ones)
        found = [top for top in (127, 63) if _product(ones, top, packed).allclose(exact)]
    except (AttributeError, RuntimeError):
        found = []
    if not found:
        raise UserError(
            "PyTorch has no int8 matrix products for this processor; use float32 or bfloat16"
        )
    return found[0]
