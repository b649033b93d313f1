"""The differentiable neural computer: Graves et al. 2016, "Hybrid computing using a neural network
with dynamic external memory", Nature 538, Methods.

One head writes to slots that it finds by content or that are free; read heads find slots by content
or follow the order in which they were written (:mod:`heedful.attention.allocation`).

Shapes: B batch, R read heads, N slots, W width of a slot, P width of the interface.
"""

from typing import Literal, NamedTuple

import torch.nn.functional as F
from torch import Tensor

from heedful.attention.addressing import content_weights, erase_and_add, read_slots
from heedful.attention.allocation import (
    allocation_weights,
    follow_links,
    next_links,
    next_precedence,
    next_usage,
    read_weights,
    retention,
    write_weights,
)
from heedful.models.memory_machine import MemoryMachine, MemorySettings, Sizes, WatchedWeights
from heedful.models.registry import register_model


class NeuralComputerSettings(MemorySettings):
    """Sizes of a differentiable neural computer."""

    kind: Literal["differentiable-neural-computer"] = "differentiable-neural-computer"


class NeuralComputerState(NamedTuple):
    """The state between two steps; all of it is zero before the first one."""

    memory: Tensor
    """``[B, N, W]``"""
    usage: Tensor
    """``[B, N]``"""
    written: Tensor
    """The write weights ``[B, N]``."""
    precedence: Tensor
    """``[B, N]``"""
    links: Tensor
    """``[B, N, N]``"""
    read_at: Tensor
    """The read weights ``[B, R, N]``."""
    read: Tensor
    """What the read heads have read ``[B, R · W]``."""


class NeuralComputer(MemoryMachine):
    """A controller with one write head and read heads over a memory with usage and links.

    Args:
        settings: sizes.
        inputs: width of the inputs.
        outputs: width of the outputs.

    Source: Graves et al. 2016, Methods.

    Example:
        >>> import torch
        >>> computer = NeuralComputer(NeuralComputerSettings(slots=8, slot_size=4), 3, 2)
        >>> computer(torch.zeros(1, 5, 3)).shape
        torch.Size([1, 5, 2])
    """

    def __init__(self, settings: NeuralComputerSettings, inputs: int, outputs: int) -> None:
        heads, width = settings.read_heads, settings.slot_size
        # Strengths; free, allocation and write gates, and erasing; modes; keys; adding.
        self.sizes = [heads + 1, heads + 2 + width, 3 * heads, (heads + 1) * width, width]
        super().__init__(settings, Sizes(inputs, outputs, sum(self.sizes)))
        self.settings = settings
        self.reading, self.writing = WatchedWeights(), WatchedWeights()
        self.usage, self.allocation, self.links = (WatchedWeights() for _ in range(3))

    def start(self, rows: int) -> NeuralComputerState:
        """The state before the first step: zeros."""
        own = self.settings
        heads, slots, width = own.read_heads, own.slots, own.slot_size
        zeros = self.output.weight.new_zeros
        return NeuralComputerState(
            memory=zeros(rows, slots, width),
            usage=zeros(rows, slots),
            written=zeros(rows, slots),
            precedence=zeros(rows, slots),
            links=zeros(rows, slots, slots),
            read_at=zeros(rows, heads, slots),
            read=zeros(rows, heads * width),
        )

    def act(self, interface: Tensor, state: NeuralComputerState) -> NeuralComputerState:
        """Free, allocate, write, link and read."""
        heads, width = self.settings.read_heads, self.settings.slot_size
        positive, shares, modes, keys, add = interface.split(self.sizes, -1)
        strengths = 1 + F.softplus(positive)
        free, allocate, write, erase = shares.sigmoid().split([heads, 1, 1, width], -1)
        keys = keys.unflatten(-1, (heads + 1, width))  # the write head's first
        usage = next_usage(state.usage, state.written, retention(free, state.read_at))
        free_slots = allocation_weights(usage)
        found = content_weights(keys[:, :1], strengths[:, :1], state.memory).squeeze(1)
        written = write_weights(write, allocate, free_slots, found)
        self._show(usage, free_slots, written)
        erased, added = erase.unsqueeze(1), add.unsqueeze(1)
        memory = erase_and_add(state.memory, written.unsqueeze(1), erased, added)
        links = next_links(state.links, state.precedence, written)
        backward, forward = follow_links(links, state.read_at)
        found = content_weights(keys[:, 1:], strengths[:, 1:], memory)
        ways = modes.unflatten(-1, (heads, 3)).softmax(-1)
        read_at = self.reading(read_weights(ways, backward, found, forward))
        self.links(links.unsqueeze(1))
        return NeuralComputerState(
            memory,
            usage,
            written,
            next_precedence(state.precedence, written),
            links,
            read_at,
            read_slots(read_at, memory).flatten(1),
        )

    def _show(self, usage: Tensor, allocation: Tensor, written: Tensor) -> None:
        self.usage(usage.unsqueeze(1))
        self.allocation(allocation.unsqueeze(1))
        self.writing(written.unsqueeze(1))

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        """Steps × slots of all weights; the links are slots × slots at each step."""
        each = ("steps", "slots")
        return {
            "writing": each,
            "reading": each,
            "usage": each,
            "allocation": each,
            "links": ("slots", "slots", "steps"),
        }


register_model(NeuralComputerSettings, NeuralComputer)
