"""Controllers of memories: networks that read the input and what the memory returned, step by step.

Shapes: B batch, T steps, I width of the inputs, R width of what is read, D width of the states.
"""

from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.layers.recurrent import Hidden, RecurrentStack
from heedful.layers.stepwise import Stepwise

ControllerKind = Literal["feed-forward", "lstm"]


class ControllerSteps(Protocol):
    """The steps of a controller over one batch of sequences."""

    def __call__(self, read: Tensor) -> Tensor:
        """The state ``[B, D]`` of the next step, given what was ``read [B, R]`` in the last one."""
        ...


class FeedForwardController(nn.Module):
    """``tanh(W [x_t; r_{t−1}] + b)``.

    Args:
        inputs: I.
        read: R.
        width: D.
    """

    def __init__(self, inputs: int, read: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs + read, width)

    def steps(self, inputs: Tensor) -> ControllerSteps:
        """The steps over ``inputs [B, T, I]``."""
        width = inputs.shape[-1]
        weight, bias = self.linear.weight, self.linear.bias
        base = F.linear(inputs.transpose(0, 1), weight[:, :width], bias)
        step = Stepwise(weight[:, width:], base)
        return lambda read: torch.tanh(step(read))


class LstmController(nn.Module):
    """Layers of LSTM cells over ``[x_t; r_{t−1}]``, whose states are zero before the first step.

    Args:
        inputs: I.
        read: R.
        width: D.
        layers: their number.
    """

    def __init__(self, inputs: int, read: int, width: int, layers: int = 1) -> None:
        super().__init__()
        self.stack = RecurrentStack("lstm", inputs + read, width, layers, dropout=0.0)

    def steps(self, inputs: Tensor) -> ControllerSteps:
        """The steps over ``inputs [B, T, I]``."""
        network = self.stack.network
        zeros = inputs.new_zeros(len(inputs), network.hidden_size)
        return _LstmSteps(self.stack, inputs, ((zeros, zeros),) * network.num_layers)


class _LstmSteps:
    def __init__(self, stack: RecurrentStack, inputs: Tensor, hidden: Hidden) -> None:
        self.steps, self.hidden = stack.steps(inputs), hidden

    def __call__(self, read: Tensor) -> Tensor:
        self.hidden = self.steps(read, self.hidden)
        return self.hidden[-1][0]


def build_controller(
    kind: ControllerKind, inputs: int, read: int, width: int, layers: int
) -> FeedForwardController | LstmController:
    """A controller of a kind; ``layers`` are those of the LSTM."""
    if kind == "lstm":
        return LstmController(inputs, read, width, layers)
    return FeedForwardController(inputs, read, width)
