"""A linear layer whose rows have a limited norm: a hard constraint instead of weight decay.

Hinton et al. 2012, "Improving neural networks by preventing co-adaptation of feature detectors",
appendix A.1; Kim 2014, section 2.1.
Shapes: I inputs, O outputs.
"""

from typing import Protocol, runtime_checkable

import torch
from torch import nn


@runtime_checkable
class Constrained(Protocol):
    """A module whose parameters the training loop constrains after each step."""

    def constrain(self) -> None:
        """Project the parameters onto the allowed set, in place."""
        ...


def constrained_modules(model: nn.Module) -> list[Constrained]:
    """The modules of a model that are constrained."""
    return [module for module in model.modules() if isinstance(module, Constrained)]


class MaxNormLinear(nn.Linear):
    """``W x + b``; after each training step, rows of W ``[O, I]`` with a larger norm are scaled
    back to ``limit``.

    Args:
        inputs: I.
        outputs: O.
        limit: the largest L2 norm of a row, above 0.

    Example:
        >>> layer = MaxNormLinear(4, 2, limit=3.0)
        >>> _ = layer.weight.data.fill_(10.0)
        >>> layer.constrain()
        >>> layer.weight.norm(dim=1)
        tensor([3., 3.], grad_fn=<LinalgVectorNormBackward0>)
    """

    def __init__(self, inputs: int, outputs: int, limit: float) -> None:
        super().__init__(inputs, outputs)
        self.limit = limit

    def constrain(self) -> None:
        """Scale back the rows that are too long."""
        with torch.no_grad():
            norm = self.weight.norm(dim=1, keepdim=True)
            # A factor of exactly 1 leaves a short row unchanged.
            self.weight *= torch.where(norm > self.limit, self.limit / norm, 1.0)


def output_linear(inputs: int, outputs: int, limit: float | None) -> nn.Linear:
    """A linear layer, with a limit on the norm of its rows if one is given."""
    if limit is None:
        return nn.Linear(inputs, outputs)
    return MaxNormLinear(inputs, outputs, limit)
