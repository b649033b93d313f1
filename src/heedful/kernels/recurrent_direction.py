"""One direction of one recurrent layer over sequences of different lengths, as one operator.

C computes all steps. The gradient of the weights is one product over all steps.

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
from heedful.kernels.recurrent_cell import cell_step, loops_in_c
from heedful.kernels.recurrent_direction_compiled import CompiledDirection


class Direction(Formula):
    """States ``[M, H]`` and final states ``[P, B, H]``; the initial state is zero.

    Saved for the backward pass: the LSTM's c ``[M, H]``, the gates, and the GRU's products with h.
    """

    inputs = "Tensor known, Tensor weight, Tensor bias"
    settings = "str cell, int[] sizes, bool backwards"
    outputs, saved_count = 2, 3

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
        gates = torch.empty_like(known, memory_format=torch.contiguous_format)
        return [
            known.new_empty(tokens, units),
            known.new_empty(parts, sizes[0], units),
            known.new_empty((tokens, units) if parts > 1 else 0),
            gates,
            torch.empty_like(gates) if cell == "gru" else gates.new_empty(0),
        ]

    def is_supported(self, tensors: Tensors) -> bool:
        return loops_in_c(tensors)

    def run(self, tensors: Tensors, settings: Sequence[Any], buffers: Sequence[Tensor]) -> None:
        (known, weight, bias), (kind, sizes, backwards) = tensors, settings
        tops, last, inner, gates, recurrent = buffers
        given = known.contiguous(), gates, recurrent if kind == "gru" else gates
        loop = CompiledDirection(kind, sizes, backwards, weight.t(), bias)
        loop.run(*given, tops, inner if len(last) > 1 else None)
        ends = _ends(sizes, backwards)
        for part, states in zip(last, (tops, inner), strict=False):
            torch.index_select(states, 0, ends, out=part)

    def backward_in_c(
        self,
        by: Sequence[Tensor],
        tensors: Tensors,
        buffers: Sequence[Tensor],
        settings: Sequence[Any],
    ) -> list[Tensor | None]:
        (_, weight, _), (kind, sizes, backwards) = tensors, settings
        (by_tops, by_last), (tops, last, inner, gates, recurrent) = by, buffers
        grad_gates = torch.empty_like(gates)
        grad_recurrent = torch.empty_like(recurrent) if kind == "gru" else grad_gates
        saved = gates, recurrent if kind == "gru" else gates, tops, inner if len(last) > 1 else None
        loop = CompiledDirection(kind, sizes, backwards, weight, None)
        loop.run_backward(saved, by_tops, list(by_last.clone()), grad_gates, grad_recurrent)
        before = F.pad(tops, (0, 0, 0, 1)).index_select(0, _before(sizes, backwards))
        return [grad_gates, grad_recurrent.t() @ before, grad_recurrent.sum(0)]


def _parts(cell: str) -> int:
    return 2 if cell == "lstm" else 1


def _places(sizes: Sequence[int], backwards: bool) -> list[slice]:
    """The range of each step's tokens, in reading order."""
    edges = itertools.accumulate(sizes, initial=0)
    steps = [slice(first, last) for first, last in itertools.pairwise(edges)]
    return steps[::-1] if backwards else steps


def _ends(sizes: Sequence[int], backwards: bool) -> Tensor:
    """The token of each sequence that is read last ``[B]``."""
    rows = torch.arange(sizes[0])
    if backwards:
        return rows
    counts = torch.tensor(sizes)
    steps = (counts > rows.unsqueeze(1)).sum(1)  # of each sequence
    return (counts.cumsum(0) - counts)[steps - 1] + rows


def _before(sizes: Sequence[int], backwards: bool) -> Tensor:
    """The token that is read before each token ``[M]``; M if there is none."""
    tokens = sum(sizes)
    found = torch.full((tokens,), tokens)
    steps = _places(sizes, backwards)
    for last, own in itertools.pairwise(steps):
        count = min(own.stop - own.start, last.stop - last.start)
        found[own.start : own.start + count] = torch.arange(last.start, last.start + count)
    return found


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
