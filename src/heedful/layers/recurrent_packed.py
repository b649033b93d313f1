"""A recurrent network over sequences of different lengths, as it learns on the CPU.

PyTorch's own networks note each operation of each step for the backward pass, of which a step has
some twenty. Here a layer's direction is one function of autograd: a step is a product and one call
of C, and the weights' gradients are one product over all steps.

Shapes: B sequences, M tokens of all of them, I input width, H hidden, G gates. Tokens lie as
:class:`torch.nn.utils.rnn.PackedSequence` has them: all first tokens, longest sequence first, then
all second ones, and so on.
"""

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from heedful.basics.addresses import readable
from heedful.layers.cells import CompiledCell, library
from heedful.layers.dropout import dropout

_CELLS = {"RNN_TANH": "rnn", "GRU": "gru", "LSTM": "lstm"}


def learns_in_c(network: nn.RNNBase, packed: PackedSequence) -> bool:
    """Whether :func:`packed_network` can take the network's place: with gradients, in float32 on
    the CPU, without hooks, where there is a compiler."""
    weights = [packed.data, *network.parameters()]
    return (
        torch.is_grad_enabled()
        and type(network) in (nn.RNN, nn.GRU, nn.LSTM)
        and network.mode in _CELLS
        and network.bias
        and not network.proj_size
        and not (network._forward_hooks or network._forward_pre_hooks)
        and all(part.dtype == torch.float32 for part in weights)
        and not torch.is_autocast_enabled("cpu")
        and readable(*weights)
        and library() is not None
    )


def packed_network(
    network: nn.RNNBase, packed: PackedSequence
) -> tuple[PackedSequence, tuple[Tensor, ...]]:
    """What ``network(packed)`` gives; the final states are a tuple for every cell.

    See :func:`learns_in_c` for when.
    """
    sizes, data = packed.batch_sizes.tolist(), packed.data
    directions = ["", "_reverse"] if network.bidirectional else [""]
    finals = []
    for layer in range(network.num_layers):
        if layer and network.dropout and network.training:
            data = dropout(data, network.dropout)
        outputs = []
        for suffix in directions:
            names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
            from_input, bias, *recurrent = (
                getattr(network, f"{name}_l{layer}{suffix}") for name in names
            )
            known = F.linear(data, from_input, bias)
            found = _Direction.apply(  # type: ignore[no-untyped-call]
                _CELLS[network.mode], sizes, bool(suffix), known, *recurrent
            )
            outputs.append(found[0])
            finals.append(found[1:])
        data = torch.cat(outputs, dim=1) if len(outputs) > 1 else outputs[0]
    back = packed.unsorted_indices
    final = (torch.stack(part) for part in zip(*finals, strict=True))
    return (
        PackedSequence(data, packed.batch_sizes, packed.sorted_indices, back),
        tuple(part if back is None else part.index_select(1, back) for part in final),
    )


def _places(sizes: list[int], backwards: bool) -> list[slice]:
    """Where each step's tokens lie, in the order in which they are read."""
    edges = itertools.accumulate(sizes, initial=0)
    steps = [slice(first, last) for first, last in itertools.pairwise(edges)]
    return steps[::-1] if backwards else steps


class _Direction(torch.autograd.Function):
    """One layer in one direction, from zeros on: states ``[M, H]``, the last ``[B, H]``."""

    @staticmethod
    def forward(
        ctx: Any,
        kind: str,
        sizes: list[int],
        backwards: bool,
        known: Tensor,
        weight: Tensor,
        bias: Tensor,
    ) -> tuple[Tensor, ...]:
        units, parts = weight.shape[1], 2 if kind == "lstm" else 1
        now = [known.new_zeros(sizes[0], units) for _ in range(parts)]
        before = [known.new_empty(len(known), units) for _ in now]
        after = [torch.empty_like(part) for part in before]
        opened, recurrent = torch.empty_like(known), torch.empty_like(known)
        cell = CompiledCell(kind, units)
        for own in _places(sizes, backwards):
            there = slice(own.stop - own.start)  # the sequences that have such a token
            for state, kept in zip(now, before, strict=True):
                kept[own] = state[there]
            torch.addmm(bias, before[0][own], weight.t(), out=recurrent[own])
            both = [part[own] for part in before], [part[own] for part in after]
            cell.step(known[own], opened[own], recurrent[own], *both)
            for state, made in zip(now, after, strict=True):
                state[there] = made[own]
        ctx.settings = kind, sizes, backwards
        ctx.save_for_backward(weight, opened, recurrent, *before, *after)
        return after[0], *now

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_output: Tensor, *by_last: Tensor) -> tuple[Tensor | None, ...]:
        kind, sizes, backwards = ctx.settings
        weight, opened, recurrent, *states = ctx.saved_tensors
        before, after = states[: len(by_last)], states[len(by_last) :]
        of_state = [part.clone(memory_format=torch.contiguous_format) for part in by_last]
        of_gates, of_recurrent = torch.empty_like(opened), torch.empty_like(opened)
        by_output, cell = by_output.contiguous(), CompiledCell(kind, weight.shape[1])
        for own in reversed(_places(sizes, backwards)):
            there = slice(own.stop - own.start)
            running = [part[there] for part in of_state]
            cell.step_back(
                *(opened[own], recurrent[own]),
                [part[own] for part in before],
                [part[own] for part in after],
                by_output[own],
                running,
                of_gates[own],
                of_recurrent[own],
            )
            running[0].addmm_(of_recurrent[own], weight)
        return (
            *(None, None, None, of_gates),
            of_recurrent.t() @ before[0],
            of_recurrent.sum(0),
        )
