"""How important heads are to a loss, and the effect of removing them.

    I_h = E_x |∂L(x) / ∂ξ_h|

with a gate ξ_h = 1 on the result of head h. Michel et al. 2019, "Are Sixteen Heads Really Better
than One?", equation 2 and section 4.1, where the importances of a layer are divided by their
ℓ2 norm.
Shapes: B rows, H heads of a module.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from heedful.basics.errors import UserError
from heedful.inference.inference_mode import evaluating
from heedful.inference.removal import head_gates, removable_heads

Head = tuple[str, int]
"""The name of an attention module, and a head, from 0."""


def head_importance(model: nn.Module, losses: Iterable[Callable[[], Tensor]]) -> dict[Head, float]:
    """The importance of all heads that can be removed.

    Args:
        model: in evaluation mode while the losses are computed.
        losses: each computes the sum of the losses of the rows of a batch; the loss of a row must
            not depend on other rows.

    Raises:
        UserError: the model has no such heads, or there are no losses.
    """
    heads = removable_heads(model)
    if not heads:
        raise UserError("this model has no attention heads that can be removed")
    sums = dict.fromkeys(heads, 0.0)
    rows = 0
    for loss in losses:
        gradients = gate_gradients(model, list(dict.fromkeys(name for name, _ in heads)), loss)
        rows += max(len(own) for own in gradients.values())
        for name, head in heads:
            if name in gradients:
                sums[name, head] += float(gradients[name][:, head].abs().cpu().double().sum())
    if not rows:
        raise UserError("there are no examples to compute the importance of heads with")
    return {head: total / rows for head, total in sums.items()}


def gate_gradients(
    model: nn.Module, names: Sequence[str], loss: Callable[[], Tensor]
) -> dict[str, Tensor]:
    """∂L(x)/∂ξ_h of each row x, ``[B, H]`` for each module that was called."""
    with evaluating(model), head_gates(model, names) as gates, torch.enable_grad():
        total = loss()
        found = torch.autograd.grad(total, list(gates.values()), allow_unused=True)
    return {
        name: torch.zeros_like(gate) if own is None else own
        for (name, gate), own in zip(gates.items(), found, strict=True)
    }


def normalized_by_layer(importance: Mapping[Head, float]) -> dict[Head, float]:
    """The importances divided by the ℓ2 norm of those of the same module (section 4.1).

    Example:
        >>> normalized_by_layer({("a", 0): 3.0, ("a", 1): 4.0, ("b", 0): 2.0})
        {('a', 0): 0.6, ('a', 1): 0.8, ('b', 0): 1.0}
    """
    squares: dict[str, float] = {}
    for (name, _), value in importance.items():
        squares[name] = squares.get(name, 0.0) + value**2
    return {
        head: value / squares[head[0]] ** 0.5 if squares[head[0]] else 0.0
        for head, value in importance.items()
    }
