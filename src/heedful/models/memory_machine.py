"""What the neural Turing machine and the differentiable neural computer share.

At each step a controller reads the input and what was read from the memory before. Its state
determines how the heads act on the memory; the output is computed from the state and what the heads
read.

Shapes: B batch, T steps, I and O widths of input and output, D width of the controller, R width of
what all read heads read, P width of the interface.
"""

from typing import Any, NamedTuple, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.watching import Watchable
from heedful.basics.limits import MOST_LAYERS, MOST_WIDTH
from heedful.layers.controllers import ControllerKind, build_controller
from heedful.layers.stepwise import Stepwise
from heedful.models.registry import SequenceSettings
from heedful.models.sequences import SequenceModel

MOST_SLOTS = 1 << 16
MOST_HEADS = 256


class MemorySettings(SequenceSettings):
    """Sizes of a controller and its memory."""

    controller: ControllerKind = "lstm"
    hidden_size: int = Field(100, ge=1, le=MOST_WIDTH)
    """Width of the controller."""
    layers: int = Field(1, ge=1, le=MOST_LAYERS)
    """Layers of an LSTM controller; a feed-forward controller has one."""
    slots: int = Field(128, ge=1, le=MOST_SLOTS)
    """Number of slots of the memory."""
    slot_size: int = Field(20, ge=1, le=MOST_WIDTH)
    """Width of a slot."""
    read_heads: int = Field(1, ge=1, le=MOST_HEADS)


class MemoryState(Protocol):
    """The state of a memory between two steps."""

    @property
    def read(self) -> Tensor:
        """What all read heads have read ``[B, R]``."""
        ...


class WatchedWeights(Watchable):
    """Passes weights on, and shows them to :func:`heedful.attention.watch`."""

    def forward(self, weights: Tensor) -> Tensor:
        """``weights``: ``[B, H, N]`` for one query of each head, or ``[B, H, N, N]``."""
        if self.watched_at_all:
            self.show(weights.unsqueeze(2) if weights.dim() == 3 else weights)
        return weights


class Sizes(NamedTuple):
    """The widths of inputs, outputs and the interface."""

    inputs: int
    outputs: int
    interface: int


class MemoryMachine(SequenceModel):
    """Base of models with a controller and a memory that it reads and writes.

    A subclass implements :meth:`start` and :meth:`act`.

    Args:
        settings: of the controller and the memory.
        sizes: I, O and P.
    """

    def __init__(self, settings: MemorySettings, sizes: Sizes) -> None:
        super().__init__()
        read, width = settings.read_heads * settings.slot_size, settings.hidden_size
        self.controller = build_controller(
            settings.controller, sizes.inputs, read, width, settings.layers
        )
        self.interface = nn.Linear(width, sizes.interface)
        self.output = nn.Linear(width + read, sizes.outputs)

    def start(self, rows: int) -> Any:
        """The state before the first step of ``rows`` sequences."""
        raise NotImplementedError

    def act(self, interface: Tensor, state: Any) -> Any:
        """The state after the heads have acted on the memory.

        Args:
            interface: what the controller emits for the heads ``[B, P]``.
            state: of the previous step.
        """
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``[B, T, O]`` for ``inputs [B, T, I]``."""
        rows, steps, _ = inputs.shape
        control = self.controller.steps(inputs)
        bias = self.interface.bias.expand(steps, rows, -1)
        interface = Stepwise(self.interface.weight, bias)
        state: MemoryState = self.start(rows)
        states, reads = [], []
        for _ in range(steps):
            hidden = control(state.read)
            state = self.act(interface(hidden), state)
            states.append(hidden)
            reads.append(state.read)
        both = torch.cat([torch.stack(states, 1), torch.stack(reads, 1)], -1)
        logits: Tensor = self.output(both)
        return logits
