"""The neural Turing machine: Graves, Wayne, Danihelka 2014, "Neural Turing Machines".

Its heads find slots by content, or by moving from where they were
(:mod:`heedful.attention.addressing`). At each step all heads address the memory M_{t−1}, the write
heads change it to M_t, and the read heads read M_t.

Shapes: B batch, H heads (the read heads first), R read heads, K write heads, N slots, W width of a
slot, S shifts, P width of the interface.
"""

from typing import Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention.addressing import (
    content_weights,
    erase_and_add,
    interpolate,
    read_slots,
    sharpen,
    shift,
)
from heedful.models.memory_machine import (
    MOST_HEADS,
    MemoryMachine,
    MemorySettings,
    Sizes,
    WatchedWeights,
)
from heedful.models.registry import register_model

_EMPTY = 1e-6
"""All numbers of the memory before the first step."""
_FIRST = 5.0
"""The initial logit of the first slot in the weights before the first step; others are 0."""


class TuringMachineSettings(MemorySettings):
    """Sizes of a neural Turing machine."""

    kind: Literal["neural-turing-machine"] = "neural-turing-machine"
    write_heads: int = Field(1, ge=1, le=MOST_HEADS)
    shift_range: int = Field(1, ge=0, le=128)
    """The most slots that a head moves in one step, in either direction."""

    @model_validator(mode="after")
    def _shifts_fit(self) -> Self:
        if 2 * self.shift_range + 1 > self.slots:
            raise ValueError(
                f"shift_range {self.shift_range} needs at least {2 * self.shift_range + 1} slots, "
                f"not {self.slots}"
            )
        return self


class TuringMachineState(NamedTuple):
    """The state between two steps."""

    memory: Tensor
    """``[B, N, W]``"""
    weights: Tensor
    """Of all heads ``[B, H, N]``."""
    read: Tensor
    """What the read heads have read ``[B, R · W]``."""


class TuringMachine(MemoryMachine):
    """A controller with read and write heads over a memory.

    The memory starts with equal small numbers. The heads start with learned weights; at first, most
    of the weight is at the first slot.

    Args:
        settings: sizes.
        inputs: width of the inputs.
        outputs: width of the outputs.

    Source: Graves et al. 2014, section 3.

    Example:
        >>> machine = TuringMachine(TuringMachineSettings(slots=8, slot_size=4), 3, 2)
        >>> machine(torch.zeros(1, 5, 3)).shape
        torch.Size([1, 5, 2])
    """

    def __init__(self, settings: TuringMachineSettings, inputs: int, outputs: int) -> None:
        heads, width = settings.read_heads + settings.write_heads, settings.slot_size
        shifts, written = 2 * settings.shift_range + 1, settings.write_heads * width
        self.sizes = [2 * heads, heads + written, heads * width, heads * shifts, written]
        super().__init__(settings, Sizes(inputs, outputs, sum(self.sizes)))
        self.settings, self.heads = settings, heads
        self.start_logits = nn.Parameter(torch.zeros(heads, settings.slots))
        nn.init.constant_(self.start_logits[:, 0], _FIRST)
        self.reading, self.writing = WatchedWeights(), WatchedWeights()

    def start(self, rows: int) -> TuringMachineState:
        """The state before the first step."""
        own = self.settings
        memory = self.start_logits.new_full((rows, own.slots, own.slot_size), _EMPTY)
        weights = self.start_logits.softmax(-1).expand(rows, -1, -1)
        return TuringMachineState(
            memory, weights, memory.new_zeros(rows, own.read_heads * own.slot_size)
        )

    def act(self, interface: Tensor, state: TuringMachineState) -> TuringMachineState:
        """Address, write and read."""
        own, heads = self.settings, self.heads
        positive, shares, keys, shifts, add = interface.split(self.sizes, -1)
        strength, power = F.softplus(positive).chunk(2, -1)
        gate, erase = shares.sigmoid().split([heads, own.write_heads * own.slot_size], -1)
        memory, before, _ = state
        weights = content_weights(keys.unflatten(-1, (heads, -1)), strength, memory)
        weights = interpolate(gate, weights, before)
        weights = shift(weights, shifts.unflatten(-1, (heads, -1)).softmax(-1))
        weights = sharpen(weights, 1 + power)
        reading, writing = weights.split([own.read_heads, own.write_heads], 1)
        erased, added = (one.unflatten(-1, (own.write_heads, -1)) for one in (erase, add.tanh()))
        memory = erase_and_add(memory, self.writing(writing), erased, added)
        read = read_slots(self.reading(reading), memory).flatten(1)
        return TuringMachineState(memory, weights, read)

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        """What each head reads and writes: steps × slots."""
        return {"writing": ("steps", "slots"), "reading": ("steps", "slots")}


register_model(TuringMachineSettings, TuringMachine)
