"""Operators in C with a plain reference formula and derivatives of any order.

If C does not support the tensors (dtype, device, autocast), the formula computes the result and
its gradients. Second derivatives always use the formula.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from heedful.kernels.operators import Operator, one_by_one, second_derivatives

Tensors = Sequence[Any]
"""The tensors of an operator; None for an optional tensor without a value."""


class Formula(ABC):
    """The formula of an operator and its implementation in C.

    Attributes:
        inputs: the tensors in schema notation: ``Tensor states, Tensor? bias``.
        settings: the other arguments in schema notation: ``str cell, float scale``.
        outputs: the number of outputs.
        saved_count: the number of tensors saved for the backward pass.
    """

    inputs: str
    settings: str
    outputs: int
    saved_count: int

    @abstractmethod
    def plain(self, tensors: Tensors, settings: Sequence[Any]) -> tuple[Tensor, ...]:
        """Compute the outputs with PyTorch operations."""

    @abstractmethod
    def empty_outputs(self, tensors: Tensors, settings: Sequence[Any]) -> list[Tensor]:
        """Uninitialised contiguous tensors for the outputs and the saved tensors."""

    @abstractmethod
    def is_supported(self, tensors: Tensors) -> bool:
        """Whether the implementation in C supports the tensors."""

    @abstractmethod
    def run(self, tensors: Tensors, settings: Sequence[Any], buffers: Sequence[Tensor]) -> None:
        """Fill the buffers of :meth:`empty_outputs`. Requires :meth:`is_supported`."""

    @abstractmethod
    def backward_in_c(
        self,
        grads_in: Sequence[Tensor],
        tensors: Tensors,
        buffers: Sequence[Tensor],
        settings: Sequence[Any],
    ) -> list[Tensor | None]:
        """The gradients of the inputs, given those of the outputs. Requires :meth:`is_supported`.

        They are contiguous and share no memory. None for inputs without a gradient.
        """


class FormulaOperator:
    """``torch.ops.heedful.<name>`` and ``<name>_backward``, with gradients and vmap rules.

    The operator returns the outputs, followed by the saved tensors, which have no gradient.
    """

    def __init__(self, name: str, formula: Formula) -> None:
        self.formula = formula
        self._count = len(formula.inputs.split(","))
        many = formula.outputs + formula.saved_count
        arguments = [formula.inputs, formula.settings]
        grads_in = ", ".join(f"Tensor by_{place}" for place in range(formula.outputs))
        buffers = ", ".join(f"Tensor made_{place}" for place in range(many))
        self.forward = Operator(name, self._run, _schema(arguments, many))
        back = [grads_in, formula.inputs, buffers, formula.settings]
        self.backward = Operator(f"{name}_backward", self._run_backward, _schema(back, self._count))
        self.forward.operator.register_fake(self._empty_outputs)
        self.backward.operator.register_fake(self._empty_gradients)
        self.forward.register_autograd(self._autograd_backward, self._setup_context)
        self.backward.register_autograd(self._second_derivatives, self._setup_context_of_backward)
        for one in (self.forward.operator, self.backward.operator):
            one.register_vmap(one_by_one(one))

    def __call__(self, *arguments: Any) -> tuple[Tensor, ...]:
        """Compute the outputs. Arguments are tensors and settings in the order of the schema."""
        found: tuple[Tensor, ...] = self.forward(*arguments)[: self.formula.outputs]
        return found

    def _empty_outputs(self, *arguments: Any) -> tuple[Tensor, ...]:
        return tuple(self.formula.empty_outputs(arguments[: self._count], arguments[self._count :]))

    def _run(self, *arguments: Any) -> tuple[Tensor, ...]:
        tensors, settings = arguments[: self._count], arguments[self._count :]
        buffers = self.formula.empty_outputs(tensors, settings)
        with torch.autocast("cpu", enabled=False):
            if self.formula.is_supported(tensors):
                self.formula.run(tensors, settings, buffers)
                return tuple(buffers)
        found = self.formula.plain(tensors, settings)
        for place, part in zip(buffers, found, strict=False):
            place.copy_(part)
        for place in buffers[self.formula.outputs :]:
            place.zero_()
        return tuple(buffers)

    def _empty_gradients(self, *arguments: Any) -> tuple[Tensor, ...]:
        tensors = arguments[self.formula.outputs :][: self._count]
        return tuple(_empty_gradient(part, arguments[0]) for part in tensors)

    def _run_backward(self, *arguments: Any) -> tuple[Tensor, ...]:
        grads_in, tensors, buffers, settings = self._parts(arguments)
        with torch.autocast("cpu", enabled=False):
            if self.formula.is_supported([*tensors, *grads_in]):
                whole = [one.contiguous() for one in grads_in]
                found = self.formula.backward_in_c(whole, tensors, buffers, settings)
                return tuple(grads_in[0].new_empty(0) if part is None else part for part in found)
        plain, inputs = self._of_floating(tensors, settings)
        plain_grads = iter(torch.func.vjp(plain, *inputs)[1](tuple(grads_in)))
        gradients = self._empty_gradients(*arguments)
        for empty_outputs, part in zip(gradients, tensors, strict=True):
            if _floating(part):
                empty_outputs.copy_(next(plain_grads))
        return gradients

    def _of_floating(self, tensors: Tensors, settings: Sequence[Any]) -> tuple[Any, list[Tensor]]:
        """The formula as a function of the floating-point tensors, and these tensors."""

        def plain(*floating: Tensor) -> tuple[Tensor, ...]:
            own = iter(floating)
            whole = [next(own) if _floating(part) else part for part in tensors]
            return self.formula.plain(whole, settings)

        return plain, [part for part in tensors if part is not None and _floating(part)]

    def _parts(self, arguments: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """Split the backward operator's arguments: gradients, inputs, buffers, settings."""
        first = self.formula.outputs
        second = first + self._count
        third = second + first + self.formula.saved_count
        return (
            arguments[:first],
            arguments[first:second],
            arguments[second:third],
            arguments[third:],
        )

    def _setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)  # saved tensors are large and have no gradient
        ctx.mark_non_differentiable(*output[self.formula.outputs :])
        ctx.save_for_backward(*inputs[: self._count], *output)
        ctx.settings = inputs[self._count :]
        ctx.autocast = torch.is_autocast_enabled(output[0].device.type)

    def _autograd_backward(self, ctx: Any, *grads_in: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        tensors, buffers = saved[: self._count], saved[self._count :]
        grads = [
            torch.zeros_like(one) if part is None else part
            for part, one in zip(grads_in[: self.formula.outputs], buffers, strict=False)
        ]
        with _autocast_as(ctx.autocast, buffers[0]):
            found = self.backward(*grads, *tensors, *buffers, *ctx.settings)
        own = [one if _floating(part) else None for one, part in zip(found, tensors, strict=True)]
        return *own, *(None for _ in ctx.settings)

    def _setup_context_of_backward(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        grads_in, tensors, _, ctx.settings = self._parts(inputs)
        ctx.save_for_backward(*grads_in, *tensors)

    def _second_derivatives(self, ctx: Any, *grads_in: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        grads, tensors = saved[: self.formula.outputs], saved[self.formula.outputs :]
        plain, inputs = self._of_floating(tensors, ctx.settings)
        by_gradients = [one for one, part in zip(grads_in, tensors, strict=True) if _floating(part)]
        by_grads, *twice = second_derivatives(
            plain, tuple(inputs), tuple(grads), tuple(by_gradients)
        )
        found = iter(twice)
        own = [next(found) if _floating(part) else None for part in tensors]
        rest = self.formula.outputs + self.formula.saved_count + len(ctx.settings)
        return *by_grads, *own, *(None for _ in range(rest))


def _autocast_as(enabled: bool, like: Tensor) -> AbstractContextManager[None]:
    """Autocast as in the forward pass, so that gradients have the same precision."""
    device = like.device.type
    if torch.is_autocast_enabled(device) == enabled:
        return nullcontext()
    return torch.autocast(device, enabled=enabled)


def _schema(arguments: Sequence[str], results: int) -> str:
    many = ", ".join(["Tensor"] * results)
    return f"({', '.join(part for part in arguments if part)}) -> ({many})"


def _floating(part: Tensor | None) -> bool:
    return part is not None and part.is_floating_point()


def _empty_gradient(part: Tensor | None, like: Tensor) -> Tensor:
    """An uninitialised gradient of an input; empty if it has no gradient."""
    if part is None or not _floating(part):
        return like.new_empty(0)
    return torch.empty_like(part, memory_format=torch.contiguous_format)
