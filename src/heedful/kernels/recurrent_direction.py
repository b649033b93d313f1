"""One direction of one recurrent layer over sequences of different lengths, as one operator.

A step is a product and one call of C. The gradient of the weights is one product over all steps.

Shapes: B sequences, M tokens in total, H hidden size, G gates, P tensors in a state. Tokens have
the order of :class:`torch.nn.utils.rnn.PackedSequence`: the first tokens of all sequences, longest
sequence first, then all second tokens, and so on.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.kernels.formula_operators import Formula, FormulaOperator, Tensors
from heedful.kernels.recurrent_cell import CompiledCell, cell_step, loops_in_c


class Direction(Formula):
    """States ``[M, H]`` and final states ``[P, B, H]``; the initial state is zero.

    Saved for the backward pass: the LSTM's c ``[M, H]``, the previous states ``[P, M, H]``, the
    gates and the products with h.
    """

    inputs = "Tensor known, Tensor weight, Tensor bias"
    settings = "str cell, int[] sizes, bool backwards"
    outputs, saved_count = 2, 4

    def plain(self, tensors: Tensors, settings: Sequence[Any]) -> tuple[Tensor, ...]:
        (known, weight, bias), (cell, sizes, backwards) = tensors, settings
        state = tuple(known.new_zeros(sizes[0], weight.shape[1]) for _ in range(_parts(cell)))
        tops: dict[int, Tensor] = {}
        for own in _places(sizes, backwards):
            count = own.stop - own.start  # the sequences that have such a token
            before = tuple(part[:count] for part in state)
            after = cell_step(cell, known[own], F.linear(before[0], weight, bias), before)
            tops[own.start] = after[0]
            state = tuple(
                torch.cat([new, part[count:]]) for new, part in zip(after, state, strict=True)
            )
        return torch.cat([tops[start] for start in sorted(tops)]), torch.stack(state)

    def empty_outputs(self, tensors: Tensors, settings: Sequence[Any]) -> list[Tensor]:
        (known, weight, _), (cell, sizes, _) = tensors, settings
        tokens, units, parts = known.shape[0], weight.shape[1], _parts(cell)
        return [
            known.new_empty(tokens, units),
            known.new_empty(parts, sizes[0], units),
            known.new_empty((tokens, units) if parts > 1 else 0),
            known.new_empty(parts, tokens, units),
            *(torch.empty_like(known, memory_format=torch.contiguous_format) for _ in range(2)),
        ]

    def is_supported(self, tensors: Tensors) -> bool:
        return loops_in_c(tensors)

    def run(self, tensors: Tensors, settings: Sequence[Any], buffers: Sequence[Tensor]) -> None:
        (known, weight, bias), (kind, sizes, backwards) = tensors, settings
        tops, now, inner, before, saved_gates, recurrent = buffers
        known, after = known.contiguous(), [tops, inner][: len(now)]
        now.zero_()
        cell = CompiledCell(kind, tops.shape[1])
        for own in _places(sizes, backwards):
            there = slice(own.stop - own.start)  # the sequences that have such a token
            before[:, own] = now[:, there]
            torch.addmm(bias, before[0, own], weight.t(), out=recurrent[own])
            both = list(before[:, own]), [part[own] for part in after]
            cell.step(known[own], saved_gates[own], recurrent[own], *both)
            for state, part in zip(now, after, strict=True):
                state[there] = part[own]

    def backward_in_c(
        self,
        by: Sequence[Tensor],
        tensors: Tensors,
        buffers: Sequence[Tensor],
        settings: Sequence[Any],
    ) -> list[Tensor | None]:
        (_, weight, _), (kind, sizes, backwards) = tensors, settings
        (by_tops, by_last), (tops, _, inner, before, saved_gates, recurrent) = by, buffers
        after, grad_state = [tops, inner][: len(before)], by_last.clone()
        grad_gates, of_recurrent = torch.empty_like(saved_gates), torch.empty_like(saved_gates)
        cell = CompiledCell(kind, weight.shape[1])
        for own in reversed(_places(sizes, backwards)):
            running = list(grad_state[:, : own.stop - own.start])
            both = list(before[:, own]), [part[own] for part in after]
            grads = grad_gates[own], of_recurrent[own]
            cell.step_backward(
                saved_gates[own], recurrent[own], *both, by_tops[own], running, *grads
            )
            running[0].addmm_(of_recurrent[own], weight)
        return [grad_gates, of_recurrent.t() @ before[0], of_recurrent.sum(0)]


def _parts(cell: str) -> int:
    return 2 if cell == "lstm" else 1


def _places(sizes: Sequence[int], backwards: bool) -> list[slice]:
    """The range of each step's tokens, in reading order."""
    edges = itertools.accumulate(sizes, initial=0)
    steps = [slice(first, last) for first, last in itertools.pairwise(edges)]
    return steps[::-1] if backwards else steps


_operator = FormulaOperator("recurrent_direction", Direction())


def direction(
    cell: str, sizes: list[int], backwards: bool, known: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """States ``[M, H]`` of all tokens, and the final state of each sequence ``[P, B, H]``.

    Args:
        cell: rnn, gru or lstm.
        sizes: the number of sequences at each step, as in ``PackedSequence.batch_sizes``.
        backwards: whether to read the last token first.
        known: the input's contribution to the gates ``[M, G·H]``, with the bias.
        weight: ``[G·H, H]``: from the state to the gates.
        bias: ``[G·H]``: added to the product with the state.
    """
    tops, last = _operator(known, weight, bias, cell, sizes, backwards)
    return tops, last
