"""Operators in C that are defined by a plain formula, with derivatives of any order.

If C cannot read the tensors (another type or device, autocast), the formula computes the result and
its gradients; derivatives of second order always use the formula.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from heedful.kernels.operators import Operator, one_by_one, second_derivatives

Tensors = Sequence[Any]
"""An operator's tensors; None for one that is not given."""


class Formula(ABC):
    """What such an operator computes.

    Attributes:
        inputs: the operator's tensors, as a schema names them: ``Tensor states, Tensor? bias``.
        settings: its other arguments, likewise: ``str cell, float scale``.
        outputs: how many tensors it gives.
        kept: how many more it keeps for the gradients.
    """

    inputs: str
    settings: str
    outputs: int
    kept: int

    @abstractmethod
    def plain(self, tensors: Tensors, settings: Sequence[Any]) -> tuple[Tensor, ...]:
        """The outputs, in operations of PyTorch."""

    @abstractmethod
    def room(self, tensors: Tensors, settings: Sequence[Any]) -> list[Tensor]:
        """Contiguous tensors, not yet filled, for the outputs and what is kept."""

    @abstractmethod
    def can_do(self, tensors: Tensors) -> bool:
        """Whether C may read the tensors now."""

    @abstractmethod
    def run(self, tensors: Tensors, settings: Sequence[Any], made: Sequence[Tensor]) -> None:
        """Fill what :meth:`room` has made; only where :meth:`can_do`."""

    @abstractmethod
    def run_back(
        self,
        by: Sequence[Tensor],
        tensors: Tensors,
        made: Sequence[Tensor],
        settings: Sequence[Any],
    ) -> list[Tensor | None]:
        """The gradient of each input from those of the outputs, ``by``; only where :meth:`can_do`.

        They are contiguous and share no memory; None for inputs that have none.
        """


class FormulaOperator:
    """``torch.ops.heedful.<name>`` and ``<name>_backward``, both differentiable and mapped.

    The operator returns the outputs and then what is kept, which has no gradient.
    """

    def __init__(self, name: str, formula: Formula) -> None:
        self.formula = formula
        self._count = len(formula.inputs.split(","))
        many = formula.outputs + formula.kept
        given = [formula.inputs, formula.settings]
        by = ", ".join(f"Tensor by_{place}" for place in range(formula.outputs))
        made = ", ".join(f"Tensor made_{place}" for place in range(many))
        self.forward = Operator(name, self._run, _schema(given, many))
        back = [by, formula.inputs, made, formula.settings]
        self.backward = Operator(f"{name}_backward", self._run_back, _schema(back, self._count))
        self.forward.operator.register_fake(self._room)
        self.backward.operator.register_fake(self._room_back)
        self.forward.register_autograd(self._through, self._keep)
        self.backward.register_autograd(self._through_back, self._keep_back)
        for one in (self.forward.operator, self.backward.operator):
            one.register_vmap(one_by_one(one))

    def __call__(self, *given: Any) -> tuple[Tensor, ...]:
        """The outputs of tensors and settings, in the order of the schema."""
        found: tuple[Tensor, ...] = self.forward(*given)[: self.formula.outputs]
        return found

    def _room(self, *given: Any) -> tuple[Tensor, ...]:
        return tuple(self.formula.room(given[: self._count], given[self._count :]))

    def _run(self, *given: Any) -> tuple[Tensor, ...]:
        tensors, settings = given[: self._count], given[self._count :]
        made = self.formula.room(tensors, settings)
        with torch.autocast("cpu", enabled=False):
            if self.formula.can_do(tensors):
                self.formula.run(tensors, settings, made)
                return tuple(made)
        found = self.formula.plain(tensors, settings)
        for place, part in zip(made, found, strict=False):
            place.copy_(part)
        for place in made[self.formula.outputs :]:
            place.zero_()
        return tuple(made)

    def _room_back(self, *given: Any) -> tuple[Tensor, ...]:
        tensors = given[self.formula.outputs :][: self._count]
        return tuple(_gradient_room(part, given[0]) for part in tensors)

    def _run_back(self, *given: Any) -> tuple[Tensor, ...]:
        by, tensors, made, settings = self._parts(given)
        with torch.autocast("cpu", enabled=False):
            if self.formula.can_do([*tensors, *by]):
                whole = [one.contiguous() for one in by]
                found = self.formula.run_back(whole, tensors, made, settings)
                return tuple(by[0].new_empty(0) if part is None else part for part in found)
        plain, inputs = self._of_floating(tensors, settings)
        plain_grads = iter(torch.func.vjp(plain, *inputs)[1](tuple(by)))
        rooms = self._room_back(*given)
        for room, part in zip(rooms, tensors, strict=True):
            if _floating(part):
                room.copy_(next(plain_grads))
        return rooms

    def _of_floating(self, tensors: Tensors, settings: Sequence[Any]) -> tuple[Any, list[Tensor]]:
        """The formula as a function of its floating tensors, and these."""

        def plain(*floating: Tensor) -> tuple[Tensor, ...]:
            own = iter(floating)
            whole = [next(own) if _floating(part) else part for part in tensors]
            return self.formula.plain(whole, settings)

        return plain, [part for part in tensors if part is not None and _floating(part)]

    def _parts(self, given: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """Gradients, inputs, what was made, and settings, which the backward operator is given."""
        first = self.formula.outputs
        second = first + self._count
        third = second + first + self.formula.kept
        return given[:first], given[first:second], given[second:third], given[third:]

    def _keep(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)  # what is kept is large and has none
        ctx.mark_non_differentiable(*output[self.formula.outputs :])
        ctx.save_for_backward(*inputs[: self._count], *output)
        ctx.settings = inputs[self._count :]
        ctx.autocast = torch.is_autocast_enabled(output[0].device.type)

    def _through(self, ctx: Any, *by: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        tensors, made = saved[: self._count], saved[self._count :]
        grads = [
            torch.zeros_like(one) if part is None else part
            for part, one in zip(by[: self.formula.outputs], made, strict=False)
        ]
        with _autocast_as(ctx.autocast, made[0]):
            found = self.backward(*grads, *tensors, *made, *ctx.settings)
        own = [one if _floating(part) else None for one, part in zip(found, tensors, strict=True)]
        return *own, *(None for _ in ctx.settings)

    def _keep_back(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        by, tensors, _, ctx.settings = self._parts(inputs)
        ctx.save_for_backward(*by, *tensors)

    def _through_back(self, ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        grads, tensors = saved[: self.formula.outputs], saved[self.formula.outputs :]
        plain, inputs = self._of_floating(tensors, ctx.settings)
        by_gradients = [one for one, part in zip(by, tensors, strict=True) if _floating(part)]
        by_grads, *twice = second_derivatives(
            plain, tuple(inputs), tuple(grads), tuple(by_gradients)
        )
        found = iter(twice)
        own = [next(found) if _floating(part) else None for part in tensors]
        rest = self.formula.outputs + self.formula.kept + len(ctx.settings)
        return *by_grads, *own, *(None for _ in range(rest))


def _autocast_as(enabled: bool, like: Tensor) -> AbstractContextManager[None]:
    """Autocast as in the forward pass, whose precision the gradients have."""
    device = like.device.type
    if torch.is_autocast_enabled(device) == enabled:
        return nullcontext()
    return torch.autocast(device, enabled=enabled)


def _schema(given: Sequence[str], results: int) -> str:
    many = ", ".join(["Tensor"] * results)
    return f"({', '.join(part for part in given if part)}) -> ({many})"


def _floating(part: Tensor | None) -> bool:
    return part is not None and part.is_floating_point()


def _gradient_room(part: Tensor | None, like: Tensor) -> Tensor:
    """Where an input's gradient goes; empty where it has none."""
    if part is None or not _floating(part):
        return like.new_empty(0)
    return torch.empty_like(part, memory_format=torch.contiguous_format)
