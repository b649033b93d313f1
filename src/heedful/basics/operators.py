"""What operators registered with ``torch.library`` have in common: mapping and second derivatives.

``torch.library`` takes no rule for forward-mode gradients: an operator drops them without a
message. Ask :func:`heedful.basics.addresses.forward_mode` before calling one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Rule = Callable[..., tuple[Any, Any]]
"""What ``torch.library.register_vmap`` takes."""


def transformable(
    operator: Any, backward: Callable[..., Any], setup_context: Callable[..., None]
) -> Callable[..., Any]:
    """Register an operator's gradients; what is returned calls it, inside ``torch.func`` too.

    There a function of autograd does it: the rules that ``register_autograd`` takes raise an error
    inside ``torch.func``'s transforms (PyTorch 2.13).

    Args:
        operator: made by ``torch.library.custom_op``, with a rule for ``vmap``.
        backward: as ``register_autograd`` takes it.
        setup_context: as ``register_autograd`` takes it.
    """
    operator.register_autograd(backward, setup_context=setup_context)
    members = {
        "generate_vmap_rule": True,
        "forward": staticmethod(lambda *given: operator(*given)),
        "setup_context": staticmethod(setup_context),
        "backward": staticmethod(backward),
    }
    transformed: Any = type(f"Transformed_{operator._name}", (torch.autograd.Function,), members)

    def call(*given: Any) -> Any:
        inside = torch._C._are_functorch_transforms_active()
        return (transformed.apply if inside else operator)(*given)

    return call


def mapped_first(part: Tensor, place: int | None, size: int) -> Tensor:
    """A tensor with the mapped dimension first, ``[size, ..]``; expanded where it has none."""
    return part.expand(size, *part.shape) if place is None else part.movedim(place, 0)


def folded(part: Tensor, place: int | None, size: int) -> Tensor:
    """The same with the mapped dimension folded into the first one, ``[size · B, ..]``."""
    return mapped_first(part, place, size).flatten(0, 1)


def unfolded(parts: Sequence[Tensor], size: int) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Results ``[size · B, ..]`` and their mapped dimensions, as a rule returns them."""
    return tuple(part.unflatten(0, (size, -1)) for part in parts), (0,) * len(parts)


def one_by_one(operator: Callable[..., Any]) -> Rule:
    """The rule that calls ``operator`` once for each index of the mapped dimension."""

    def rule(info: Any, places: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
        found = [
            operator(
                *(
                    part if place is None else part.select(place, index)
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
    plain: Callable[..., Tensor],
    inputs: tuple[Tensor, ...],
    grad: Tensor,
    by_gradients: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """What flows back through a backward operator, by the plain formula of its forward operator.

    Args:
        plain: the formula, of ``inputs`` alone.
        inputs: floating tensors.
        grad: ∂L/∂plain, which the backward operator was given.
        by_gradients: the gradients in its results, one for each of ``inputs``.

    Returns:
        The gradients in ``grad`` and in each of ``inputs``.
    """

    def gradients(grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.func.vjp(plain, *inputs)[1](grad)
        return found

    result: tuple[Tensor, ...] = torch.func.vjp(gradients, grad, *inputs)[1](by_gradients)
    return result
