"""One layer of a recurrent network in one direction, over sequences of different lengths: one
operator.

A step is a product and one call of C; the weights' gradients are one product over all steps.

Shapes: B sequences, M tokens of all of them, H hidden, G gates, P parts of a state. Tokens lie as
:class:`torch.nn.utils.rnn.PackedSequence` has them: all first tokens, longest sequence first, then
all second ones, and so on.
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
    """States ``[M, H]`` and the last ``[P, B, H]``, from zeros on.

    Kept: the LSTM's c ``[M, H]``, the states before ``[P, M, H]``, the gates, the products with h.
    """

    inputs = "Tensor known, Tensor weight, Tensor bias"
    settings = "str cell, int[] sizes, bool backwards"
    outputs, kept = 2, 4

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

    def room(self, tensors: Tensors, settings: Sequence[Any]) -> list[Tensor]:
        (known, weight, _), (cell, sizes, _) = tensors, settings
        tokens, units, parts = known.shape[0], weight.shape[1], _parts(cell)
        return [
            known.new_empty(tokens, units),
            known.new_empty(parts, sizes[0], units),
            known.new_empty((tokens, units) if parts > 1 else 0),
            known.new_empty(parts, tokens, units),
            *(torch.empty_like(known, memory_format=torch.contiguous_format) for _ in range(2)),
        ]

    def can_do(self, tensors: Tensors) -> bool:
        return loops_in_c(tensors)

    def run(self, tensors: Tensors, settings: Sequence[Any], made: Sequence[Tensor]) -> None:
        (known, weight, bias), (kind, sizes, backwards) = tensors, settings
        tops, now, inner, before, opened, recurrent = made
        known, after = known.contiguous(), [tops, inner][: len(now)]
        now.zero_()
        cell = CompiledCell(kind, tops.shape[1])
        for own in _places(sizes, backwards):
            there = slice(own.stop - own.start)  # the sequences that have such a token
            before[:, own] = now[:, there]
            torch.addmm(bias, before[0, own], weight.t(), out=recurrent[own])
            both = list(before[:, own]), [part[own] for part in after]
            cell.step(known[own], opened[own], recurrent[own], *both)
            for state, part in zip(now, after, strict=True):
                state[there] = part[own]

    def run_back(
        self,
        by: Sequence[Tensor],
        tensors: Tensors,
        made: Sequence[Tensor],
        settings: Sequence[Any],
    ) -> list[Tensor | None]:
        (_, weight, _), (kind, sizes, backwards) = tensors, settings
        (by_tops, by_last), (tops, _, inner, before, opened, recurrent) = by, made
        after, of_state = [tops, inner][: len(before)], by_last.clone()
        of_gates, of_recurrent = torch.empty_like(opened), torch.empty_like(opened)
        cell = CompiledCell(kind, weight.shape[1])
        for own in reversed(_places(sizes, backwards)):
            running = list(of_state[:, : own.stop - own.start])
            both = list(before[:, own]), [part[own] for part in after]
            grads = of_gates[own], of_recurrent[own]
            cell.step_back(opened[own], recurrent[own], *both, by_tops[own], running, *grads)
            running[0].addmm_(of_recurrent[own], weight)
        return [of_gates, of_recurrent.t() @ before[0], of_recurrent.sum(0)]


def _parts(cell: str) -> int:
    return 2 if cell == "lstm" else 1


def _places(sizes: Sequence[int], backwards: bool) -> list[slice]:
    """Where each step's tokens lie, in the order in which they are read."""
    edges = itertools.accumulate(sizes, initial=0)
    steps = [slice(first, last) for first, last in itertools.pairwise(edges)]
    return steps[::-1] if backwards else steps


_operator = FormulaOperator("recurrent_direction", Direction())


def direction(
    cell: str, sizes: list[int], backwards: bool, known: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """States ``[M, H]`` of all tokens, and the last of each sequence ``[P, B, H]``.

    Args:
        cell: rnn, gru or lstm.
        sizes: sequences at each step, as ``PackedSequence.batch_sizes`` has them.
        backwards: whether the last token is read first.
        known: the inputs' share of the gates ``[M, G·H]``, biases included.
        weight: ``[G·H, H]``, of the gates for the state.
        bias: ``[G·H]``, of the latter.
    """
    tops, last = _operator(known, weight, bias, cell, sizes, backwards)
    return tops, last
