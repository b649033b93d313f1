"""A recurrent decoder's loop over the target where attention comes first: one operator.

Step t, from the state h_{t-1} on: its products with the recurrent weights and with the query's are
one product; attention reads the source (in C); the context's product is added to what is known of
the gates; the cell (in C) gives h_t. Backwards the steps leave their gradients side by side, and
each weight's follows from all of them in one product.

Shapes: B batch, T target positions, S source positions, H hidden, G gates, D width of queries and
keys, E of values, P parts of a state (2 for the LSTM, else 1).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.kernels.formula_operators import Formula, FormulaOperator, Tensors
from heedful.kernels.recurrent_cell import CompiledCell, cell_step, loops_in_c, loops_pay
from heedful.kernels.source_attention import Sources, has_kernel, plain_source_attention


class _Given(NamedTuple):
    """The operator's tensors."""

    known: Tensor
    """What the target words give to the gates ``[T, B, G·H]``, biases included."""
    state: Tensor
    """Before the first step ``[P, B, H]``."""
    key: Tensor
    """Projected ``[B, S, D]``."""
    value: Tensor
    """``[B, S, E]``."""
    allowed: Tensor
    """Which positions may be read, booleans ``[B, 1, S]``."""
    by_context: Tensor
    """``[G·H, E]``, of the gates for the context."""
    by_state: Tensor
    """``[G·H, H]``, of the gates for the state."""
    bias: Tensor
    """``[G·H]``, of the latter."""
    by_query: Tensor
    """``[D, H]``."""
    vector: Tensor
    """v of the additive score ``[D]``."""


class Unrolled(Formula):
    """States ``[T, B, H]`` and contexts ``[T, B, E]`` of all steps.

    Kept: c of the LSTM's states, the products with h, the gates, and the weights.
    """

    inputs = ", ".join(f"Tensor {name}" for name in _Given._fields)
    settings = "str cell, float scale"
    outputs, kept = 2, 4

    def plain(self, tensors: Tensors, settings: Sequence[Any]) -> tuple[Tensor, ...]:
        (of, (cell, scale)) = _Given(*tensors), settings
        state, tops, contexts = of.state.unbind(0), [], []
        source = of.key, of.value, of.allowed, of.vector, scale
        for words in of.known.unbind(0):
            context = plain_source_attention(F.linear(state[0], of.by_query), *source)
            gates = words + F.linear(context, of.by_context)
            state = cell_step(cell, gates, F.linear(state[0], of.by_state, of.bias), state)
            tops.append(state[0])
            contexts.append(context)
        return torch.stack(tops), torch.stack(contexts)

    def room(self, tensors: Tensors, settings: Sequence[Any]) -> list[Tensor]:
        of = _Given(*tensors)
        (steps, rows, gates), units, empty = of.known.shape, of.state.shape[2], of.known.new_empty
        inner = empty((steps, rows, units) if len(of.state) > 1 else 0)
        return [
            *(empty(steps, rows, units), empty(steps, rows, of.value.shape[2]), inner),
            *(empty(steps, rows, gates + len(of.vector)), empty(steps, rows, gates)),
            empty(steps, rows, of.value.shape[1]),
        ]

    def can_do(self, tensors: Tensors) -> bool:
        return loops_in_c(tensors)

    def run(self, tensors: Tensors, settings: Sequence[Any], made: Sequence[Tensor]) -> None:
        of, (kind, scale) = _Given(*tensors), settings
        tops, contexts, inner, maps, opened, weights = made
        gates, rows = of.known.shape[2], of.known.shape[1]
        joined = torch.cat([of.by_state, of.by_query])
        bias = torch.cat([of.bias, of.bias.new_zeros(len(of.vector))])
        sources = Sources(of.key, of.value, of.allowed, torch.arange(rows), of.vector, scale)
        cell = CompiledCell(kind, tops.shape[2])
        after = [tops, inner][: len(of.state)]
        before = list(of.state.contiguous())
        for t in range(len(of.known)):
            torch.addmm(bias, before[0], joined.t(), out=maps[t])
            sources.read(maps[t, :, gates:], contexts[t], weights[t])
            torch.addmm(of.known[t], contexts[t], of.by_context.t(), out=opened[t])
            now = [part[t] for part in after]
            cell.step(opened[t], opened[t], maps[t, :, :gates], before, now)
            before = now

    def run_back(
        self,
        by: Sequence[Tensor],
        tensors: Tensors,
        made: Sequence[Tensor],
        settings: Sequence[Any],
    ) -> list[Tensor | None]:
        of, (kind, scale) = _Given(*tensors), settings
        (by_tops, by_contexts), (tops, contexts, inner, maps, opened, weights) = by, made
        (steps, rows, gates), units = opened.shape, tops.shape[2]
        joined, first = torch.cat([of.by_state, of.by_query]), of.state.contiguous()
        after = [tops, inner][: len(first)]
        of_maps, of_gates = torch.empty_like(maps), torch.empty_like(opened)
        of_contexts = torch.empty_like(contexts)
        of_key = torch.zeros_like(of.key, memory_format=torch.contiguous_format)
        of_v = of.vector.new_zeros(rows, len(of.vector))
        of_state = first.new_zeros(len(first), rows, units)
        sources = Sources(of.key, of.value, of.allowed, torch.arange(rows), of.vector, scale)
        cell = CompiledCell(kind, units)
        for t in reversed(range(steps)):
            before = [part[t - 1] for part in after] if t else list(first)
            gone, back = maps[t, :, :gates], of_maps[t, :, :gates]
            both = before, [part[t] for part in after]
            cell.step_back(opened[t], gone, *both, by_tops[t], list(of_state), of_gates[t], back)
            torch.addmm(by_contexts[t], of_gates[t], of.by_context, out=of_contexts[t])
            asked = maps[t, :, gates:], weights[t], of_contexts[t], of_maps[t, :, gates:]
            sources.read_back(*asked, of_key, of_v)
            of_state[0].addmm_(of_maps[t], joined)
        states = torch.cat([first[:1], tops[:-1]])
        of_joined = of_maps.flatten(0, 1).t() @ states.flatten(0, 1)
        return [
            *(of_gates, of_state, of_key),
            weights.permute(1, 2, 0) @ of_contexts.transpose(0, 1),
            None,
            of_gates.flatten(0, 1).t() @ contexts.flatten(0, 1),
            of_joined[:gates].clone(),
            of_maps[:, :, :gates].sum((0, 1)),
            of_joined[gates:].clone(),
            of_v.sum(0),
        ]


_operator = FormulaOperator("recurrent_unrolled", Unrolled())


def unrolled(
    cell: str,
    scale: float,
    words: Tensor,
    state: tuple[Tensor, ...],
    source: tuple[Tensor, ...],
    by_word: tuple[Tensor, Tensor],
    weights: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor] | None:
    """States ``[T, B, H]`` and contexts ``[T, B, E]`` of all steps; None where going step by step
    is as good.

    Args:
        cell: rnn, gru or lstm.
        scale: of the scores.
        words: the target's vectors ``[T, B, I]``.
        state: the state before the first step, each part ``[B, H]``.
        source: projected keys ``[B, S, D]``, values ``[B, S, E]``, and which positions may be read
            ``[B, 1, S]``.
        by_word: of the gates for words ``[G·H, I]``, and their bias ``[G·H]``.
        weights: of the gates for the context ``[G·H, E]`` and for the state ``[G·H, H]``, the bias
            of the latter ``[G·H]``, the query's ``[D, H]``, and v ``[D]``.
    """
    key, value, _ = source
    if not has_kernel(key) or not loops_pay(words, *state, key, value, *by_word, *weights):
        return None
    known = F.linear(words, *by_word)
    tops, contexts = _operator(known, torch.stack(state), *source, *weights, cell, scale)
    return tops, contexts
