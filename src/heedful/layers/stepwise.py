"""Linear maps that are applied step by step, with one weight gradient for all steps.

If the input of step t depends on step t − 1, its product with W has to wait, but the gradient of W
does not: ∂L/∂W = Σ_t g_tᵀ x_t is one product of all inputs with all gradients. Plain automatic
differentiation computes one small product per step, and sums as many matrices of W's size.
Gradients cannot be differentiated again.

Shapes: B batch, T steps, I and O widths of input and output.
"""

from typing import Any

import torch
from torch import Tensor


class Stepwise:
    """``y_t = base_t + W x_t`` for t = 0, 1, …, one call per step.

    Args:
        weight: W ``[O, I]``.
        base: the part of the outputs that is known in advance ``[T, B, O]``: a bias, or the
            contribution of other inputs.

    Example:
        >>> map = Stepwise(torch.ones(1, 2), torch.tensor([[[0.0]], [[10.0]]]))
        >>> map(torch.tensor([[1.0, 2.0]])), map(torch.tensor([[1.0, 2.0]]))
        (tensor([[3.]]), tensor([[13.]]))
    """

    def __init__(self, weight: Tensor, base: Tensor) -> None:
        kind = base.device.type
        if torch.is_autocast_enabled(kind):  # once instead of at every step
            weight, base = (part.to(torch.get_autocast_dtype(kind)) for part in (weight, base))
        self.inputs: list[Tensor] = []
        self.weight = weight
        # torch.compile unrolls the loop itself and cannot trace a growing list.
        self.gathers = torch.is_grad_enabled() and weight.requires_grad
        self.gathers = self.gathers and not torch.compiler.is_compiling()
        if self.gathers:
            base = _Gathered.apply(base, weight, self.inputs)  # type: ignore[no-untyped-call]
            self.weight = weight.detach()
        self.bases = iter(base.unbind())

    def __call__(self, x: Tensor | None) -> Tensor:
        """``y_t [B, O]`` of the next step, for ``x [B, I]``; ``x`` is None if I is 0."""
        base = next(self.bases)
        if x is None:
            return base
        if self.gathers:
            self.inputs.append(x.detach())
        return torch.addmm(base, x, self.weight.t())


class _Gathered(torch.autograd.Function):
    """Returns ``base``; in the backward pass, computes the gradient of W in one product."""

    @staticmethod
    def forward(ctx: Any, base: Tensor, weight: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs, ctx.dtype, ctx.width = inputs, weight.dtype, weight.shape[1]
        return base.view_as(base)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        if torch.is_grad_enabled():
            # once_differentiable is not enough: autograd.grad does not raise its error.
            raise RuntimeError(
                "gradients of a recurrent decoder that runs step by step cannot be differentiated "
                "again (create_graph=True); use float32 on the CPU, with a C compiler"
            )
        inputs = ctx.inputs
        if not inputs:  # The map has no input.
            return grad, grad.new_zeros(grad.shape[-1], ctx.width), None
        done = grad[: len(inputs)].flatten(0, 1)
        by_weight = done.t() @ torch.cat(inputs).to(grad.dtype)
        return grad, by_weight.to(ctx.dtype), None
