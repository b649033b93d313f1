"""The neural Turing machine and the differentiable neural computer, written by their equations.

Plain PyTorch, head by head, with the weights of heedful's models: the reference of the tests, and
the contender of ``benchmarks/memories.py``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.models.memory_machine import MemoryMachine
from heedful.models.neural_computer import NeuralComputer
from heedful.models.turing_machine import TuringMachine


def cosine(key: Tensor, memory: Tensor) -> Tensor:
    """``[B, N]``, with the lengths √(|x|² + 10⁻⁶)."""
    dots = (memory * key.unsqueeze(1)).sum(-1)
    lengths = ((key**2).sum(-1, keepdim=True) + 1e-6) * ((memory**2).sum(-1) + 1e-6)
    return dots / lengths.sqrt()


class PlainMachine(nn.Module):
    """The loop over the steps: controller, heads, output.

    Args:
        model: its weights are used, not copied.
    """

    def __init__(self, model: MemoryMachine) -> None:
        super().__init__()
        self.model = model
        self.width, self.reads = model.settings.slot_size, model.settings.read_heads

    def forward(self, inputs: Tensor) -> Tensor:
        rows = len(inputs)
        hidden = [inputs.new_zeros(rows, self.model.settings.hidden_size)] * 2
        read, outputs = inputs.new_zeros(rows, self.reads * self.width), []
        state = self.start(inputs, rows)
        for t in range(inputs.shape[1]):
            hidden = self.control(torch.cat([inputs[:, t], read], -1), hidden)
            read, state = self.heads(self.model.interface(hidden[0]), state)
            outputs.append(self.model.output(torch.cat([hidden[0], read], -1)))
        return torch.stack(outputs, 1)

    def control(self, given: Tensor, hidden: list[Tensor]) -> list[Tensor]:
        if self.model.settings.controller == "feed-forward":
            return [torch.tanh(self.model.controller.linear(given)), hidden[1]]
        own = self.model.controller.stack.network
        weights = (own.weight_ih_l0, own.weight_hh_l0, own.bias_ih_l0, own.bias_hh_l0)
        return list(torch.lstm_cell(given, hidden, *weights))


class PlainTuringMachine(PlainMachine):
    """Graves et al. 2014, section 3."""

    model: TuringMachine

    def start(self, inputs: Tensor, rows: int) -> tuple[Tensor, list[Tensor]]:
        own = self.model.settings
        memory = inputs.new_full((rows, own.slots, own.slot_size), 1e-6)
        first = self.model.start_logits.softmax(-1)
        return memory, [weights.expand(rows, -1) for weights in first]

    def heads(
        self, interface: Tensor, state: tuple[Tensor, list[Tensor]]
    ) -> tuple[Tensor, tuple[Tensor, list[Tensor]]]:
        memory, before = state
        count, writes = self.model.heads, self.model.settings.write_heads
        positive, shares, keys, shifts, adds = interface.split(self.model.sizes, -1)
        reach = self.model.settings.shift_range
        weights = []
        for h in range(count):
            key = keys[:, h * self.width : (h + 1) * self.width]
            strength = F.softplus(positive[:, h : h + 1])
            power = 1 + F.softplus(positive[:, count + h : count + h + 1])
            gate = torch.sigmoid(shares[:, h : h + 1])
            moved = shifts[:, h * (2 * reach + 1) : (h + 1) * (2 * reach + 1)].softmax(-1)
            content = (strength * cosine(key, memory)).softmax(-1)
            gated = gate * content + (1 - gate) * before[h]
            shifted = sum(
                moved[:, d + reach : d + reach + 1] * gated.roll(d, 1)
                for d in range(-reach, reach + 1)
            )
            raised = (shifted + 1e-16) ** power
            weights.append(raised / raised.sum(-1, keepdim=True))
        for h in range(writes):
            erase = torch.sigmoid(shares[:, count + h * self.width : count + (h + 1) * self.width])
            own = weights[self.reads + h]
            memory = memory * (1 - own.unsqueeze(2) * erase.unsqueeze(1))
        for h in range(writes):
            add = torch.tanh(adds[:, h * self.width : (h + 1) * self.width])
            memory = memory + weights[self.reads + h].unsqueeze(2) * add.unsqueeze(1)
        read = [(own.unsqueeze(2) * memory).sum(1) for own in weights[: self.reads]]
        return torch.cat(read, -1), (memory, weights)


class PlainNeuralComputer(PlainMachine):
    """Graves et al. 2016, Methods."""

    model: NeuralComputer

    def start(self, inputs: Tensor, rows: int) -> dict[str, Tensor]:
        own = self.model.settings
        zeros = inputs.new_zeros
        return {
            "memory": zeros(rows, own.slots, own.slot_size),
            **{name: zeros(rows, own.slots) for name in ("usage", "written", "precedence")},
            "links": zeros(rows, own.slots, own.slots),
            **{f"read {r}": zeros(rows, own.slots) for r in range(own.read_heads)},
        }

    def heads(
        self, interface: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        width, count = self.width, self.reads
        positive, shares, modes, keys, add = interface.split(self.model.sizes, -1)
        memory, written = state["memory"], state["written"]
        kept = torch.ones_like(state["usage"])
        for r in range(count):
            kept = kept * (1 - torch.sigmoid(shares[:, r : r + 1]) * state[f"read {r}"])
        usage = (state["usage"] + written - state["usage"] * written) * kept
        allocate, write = (torch.sigmoid(one) for one in shares[:, count : count + 2].split(1, -1))
        strength = 1 + F.softplus(positive[:, :1])
        content = (strength * cosine(keys[:, :width], memory)).softmax(-1)
        weights = write * (allocate * self.allocation(usage) + (1 - allocate) * content)
        erase = torch.sigmoid(shares[:, count + 2 :])
        memory = memory * (1 - weights.unsqueeze(2) * erase.unsqueeze(1))
        memory = memory + weights.unsqueeze(2) * add.unsqueeze(1)
        i, j = weights.unsqueeze(2), weights.unsqueeze(1)
        links = (1 - i - j) * state["links"] + i * state["precedence"].unsqueeze(1)
        links = links * (1 - torch.eye(links.shape[-1], dtype=links.dtype, device=links.device))
        after = {"memory": memory, "usage": usage, "written": weights, "links": links}
        after["precedence"] = (1 - weights.sum(1, keepdim=True)) * state["precedence"] + weights
        read = []
        for r in range(count):
            own = state[f"read {r}"].unsqueeze(2)
            strength = 1 + F.softplus(positive[:, r + 1 : r + 2])
            key = keys[:, (r + 1) * width : (r + 2) * width]
            content = (strength * cosine(key, memory)).softmax(-1)
            ways = modes[:, 3 * r : 3 * r + 3].softmax(-1)
            backward, forward = (links.mT @ own).squeeze(2), (links @ own).squeeze(2)
            now = ways[:, :1] * backward + ways[:, 1:2] * content + ways[:, 2:] * forward
            after[f"read {r}"] = now
            read.append((now.unsqueeze(2) * memory).sum(1))
        return torch.cat(read, -1), after

    @staticmethod
    def allocation(usage: Tensor) -> Tensor:
        used, order = (1e-6 + (1 - 1e-6) * usage).sort(1)
        before = torch.cat([torch.ones_like(used[:, :1]), used.cumprod(1)[:, :-1]], 1)
        return ((1 - used) * before).gather(1, order.argsort(1))


def plain(model: MemoryMachine) -> PlainMachine:
    """The plain form of a model."""
    kind = PlainTuringMachine if isinstance(model, TuringMachine) else PlainNeuralComputer
    return kind(model)
