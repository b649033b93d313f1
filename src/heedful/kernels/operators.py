"""Operators registered with ``torch.library``: calls, vmap rules, second derivatives.

``torch.library`` does not support forward-mode gradients: PyTorch drops them silently. Callers must
check :func:`heedful.basics.addresses.forward_mode` and use the plain formula instead.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch.autograd import Function

from heedful.basics.addresses import forward_mode, is_plain, is_traced

Rule = Callable[..., tuple[Any, Any]]
"""The argument of ``torch.library.register_vmap``."""


class Operator:
    """``torch.ops.heedful.<name>``, with a faster call for plain tensors.

    - Plain tensors use an autograd function, which saves tens of microseconds for each call.
    - Tensors under a ``torch.func`` transform use an autograd function with a ``vmap`` rule:
      functions registered with ``register_autograd`` raise an error there (PyTorch 2.13).
    - Traced, fake and subclassed tensors use the operator.

    Raises:
        NotImplementedError: when called with forward-mode gradients.

    Args:
        name: name of the operator.
        implementation: computes the operator for any tensors.
        schema: in the notation of ``torch.library``; default: from the annotations.
    """

    def __init__(
        self, name: str, implementation: Callable[..., Any], schema: str | None = None
    ) -> None:
        self.name, self.implementation = name, implementation
        self.operator: CustomOpDef = torch.library.custom_op(
            f"heedful::{name}", implementation, mutates_args=(), schema=schema
        )

    def register_autograd(
        self, backward: Callable[..., Any], setup_context: Callable[..., None]
    ) -> None:
        """Register gradients; arguments as for ``torch.library.register_autograd``."""
        self.operator.register_autograd(backward, setup_context=setup_context)
        operator, implementation = self.operator, self.implementation

        def eager(ctx: Any, *given: Any) -> Any:
            found = implementation(*given)
            setup_context(ctx, given, found)
            return found

        either = {"backward": staticmethod(backward)}
        self._eager: Any = type(
            f"Eager_{self.name}", (Function,), {"forward": staticmethod(eager), **either}
        )
        members = {
            "generate_vmap_rule": True,
            "forward": staticmethod(lambda *given: operator(*given)),
            "setup_context": staticmethod(setup_context),
            **either,
        }
        self._transformed: Any = type(f"Transformed_{self.name}", (Function,), members)

    def __call__(self, *given: Any) -> Any:
        tensors = [part for part in given if isinstance(part, Tensor)]
        if forward_mode(*tensors):
            raise NotImplementedError(
                f"heedful::{self.name} does not support forward-mode gradients"
            )
        if torch._C._are_functorch_transforms_active():
            return self._transformed.apply(*given)
        if is_traced() or not all(is_plain(part) for part in tensors):
            return self.operator(*given)
        return self._eager.apply(*given)


def mapped_first(part: Tensor, place: int | None, size: int) -> Tensor:
    """Move the mapped dimension to the front, ``[size, ..]``; expand a tensor without one."""
    return part.expand(size, *part.shape) if place is None else part.movedim(place, 0)


def folded(part: Tensor, place: int | None, size: int) -> Tensor:
    """Fold the mapped dimension into the first dimension, ``[size · B, ..]``."""
    return mapped_first(part, place, size).flatten(0, 1)


def unfolded(parts: Sequence[Tensor], size: int) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Unfold results ``[size · B, ..]``; returns them with their mapped dimensions for a rule."""
    return tuple(part.unflatten(0, (size, -1)) for part in parts), (0,) * len(parts)


def one_by_one(operator: Callable[..., Any]) -> Rule:
    """A vmap rule that calls ``operator`` once for each index of the mapped dimension."""

    def rule(info: Any, places: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
        found = [
            operator(
                *(
                    part.select(place, index) if isinstance(place, int) else part
                    for part, place in zip(given, places, strict=True)
                )
            )
            for index in range(info.batch_size)
        ]
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        stacked = tuple(torch.stack(parts) for parts in zip(*found, strict=True))
        return stacked, (0,) * len(stacked)

    return rule


def second_derivatives(
    plain: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    grad: Tensor | tuple[Tensor, ...],
    by_gradients: tuple[Tensor, ...],
) -> tuple[Any, ...]:
    """Differentiate a backward operator with the plain formula of its forward operator.

    Args:
        plain: the formula as a function of ``inputs``; returns a tensor or a tuple of tensors.
        inputs: floating-point tensors.
        grad: ∂L/∂plain, the argument of the backward operator.
        by_gradients: the gradients of its results, one for each of ``inputs``.

    Returns:
        The gradients of ``grad`` and of each of ``inputs``.
    """

    def gradients(grad: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.func.vjp(plain, *inputs)[1](grad)
        return found

    result: tuple[Any, ...] = torch.func.vjp(gradients, grad, *inputs)[1](by_gradients)
    return result
