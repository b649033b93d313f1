"""A recurrent decoder's loop over the target with attention before the cell, as one operator.

Step t starts from the state h_{t-1}. A single product multiplies it by the recurrent weights and by
the query's weights. Attention (in C) computes the context, whose product is added to the
precomputed gates of the target word. The cell (in C) computes h_t. In the backward pass, the
gradients of all steps are stored in one tensor, so that each weight's gradient is a single product.

Shapes: B batch, T target positions, S source positions, H hidden size, G gates, D width of queries
and keys, E width of values, P tensors in a state (2 for the LSTM, otherwise 1).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.kernels.formula_operators import Formula, FormulaOperator, Tensors
from heedful.kernels.recurrent_cell import CompiledCell, cell_step, loops_are_faster, loops_in_c
from heedful.kernels.source_attention import Sources, has_kernel, plain_source_attention


class _Inputs(NamedTuple):
    """The operator's tensors."""

    known: Tensor
    """The contribution of the target words to the gates ``[T, B, G·H]``, with the bias."""
    state: Tensor
    """The initial state ``[P, B, H]``."""
    key: Tensor
    """Projected ``[B, S, D]``."""
    value: Tensor
    """``[B, S, E]``."""
    allowed: Tensor
    """Allowed positions, booleans ``[B, 1, S]``."""
    by_context: Tensor
    """``[G·H, E]``: from the context to the gates."""
    by_state: Tensor
    """``[G·H, H]``: from the state to the gates."""
    bias: Tensor
    """``[G·H]``: added to the product with the state."""
    by_query: Tensor
    """``[D, H]``: from the state to the query."""
    vector: Tensor
    """v ``[D]`` of the additive score."""


class Unrolled(Formula):
    """States ``[T, B, H]`` and contexts ``[T, B, E]`` of all steps.

    Saved for the backward pass: c of the LSTM's states, the products with h, the gates and the
    attention weights.
    """

    inputs = ", ".join(f"Tensor {name}" for name in _Inputs._fields)
    settings = "str cell, float scale"
    outputs, saved_count = 2, 4

    def plain(self, tensors: Tensors, settings: Sequence[Any]) -> tuple[Tensor, ...]:
        (of, (cell, scale)) = _Inputs(*tensors), settings
        state, tops, contexts = of.state.unbind(0), [], []
        source = of.key, of.value, of.allowed, of.vector, scale
        for words in of.known.unbind(0):
            context = plain_source_attention(F.linear(state[0], of.by_query), *source)
            gates = words + F.linear(context, of.by_context)
            state = cell_step(cell, gates, F.linear(state[0], of.by_state, of.bias), state)
            tops.append(state[0])
            contexts.append(context)
        return torch.stack(tops), torch.stack(contexts)

    def empty_outputs(self, tensors: Tensors, settings: Sequence[Any]) -> list[Tensor]:
        of = _Inputs(*tensors)
        (steps, rows, gates), units, empty = of.known.shape, of.state.shape[2], of.known.new_empty
        inner = empty((steps, rows, units) if len(of.state) > 1 else 0)
        return [
            *(empty(steps, rows, units), empty(steps, rows, of.value.shape[2]), inner),
            *(empty(steps, rows, gates + len(of.vector)), empty(steps, rows, gates)),
            empty(steps, rows, of.value.shape[1]),
        ]

    def is_supported(self, tensors: Tensors) -> bool:
        return loops_in_c(tensors)

    def run(self, tensors: Tensors, settings: Sequence[Any], buffers: Sequence[Tensor]) -> None:
        of, (kind, scale) = _Inputs(*tensors), settings
        tops, contexts, inner, maps, saved_gates, weights = buffers
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
            torch.addmm(of.known[t], contexts[t], of.by_context.t(), out=saved_gates[t])
            now = [part[t] for part in after]
            cell.step(saved_gates[t], saved_gates[t], maps[t, :, :gates], before, now)
            before = now

    def backward_in_c(
        self,
        by: Sequence[Tensor],
        tensors: Tensors,
        buffers: Sequence[Tensor],
        settings: Sequence[Any],
    ) -> list[Tensor | None]:
        of, (kind, scale) = _Inputs(*tensors), settings
        (by_tops, by_contexts), (tops, contexts, inner, maps, saved_gates, weights) = by, buffers
        (steps, rows, gates), units = saved_gates.shape, tops.shape[2]
        joined, first = torch.cat([of.by_state, of.by_query]), of.state.contiguous()
        after = [tops, inner][: len(first)]
        grad_maps, grad_gates = torch.empty_like(maps), torch.empty_like(saved_gates)
        grad_contexts = torch.empty_like(contexts)
        grad_key = torch.zeros_like(of.key, memory_format=torch.contiguous_format)
        grad_v = of.vector.new_zeros(rows, len(of.vector))
        grad_state = first.new_zeros(len(first), rows, units)
        sources = Sources(of.key, of.value, of.allowed, torch.arange(rows), of.vector, scale)
        cell = CompiledCell(kind, units)
        for t in reversed(range(steps)):
            before = [part[t - 1] for part in after] if t else list(first)
            gone, back = maps[t, :, :gates], grad_maps[t, :, :gates]
            both = before, [part[t] for part in after]
            now = saved_gates[t], gone, *both
            cell.step_backward(*now, by_tops[t], list(grad_state), grad_gates[t], back)
            torch.addmm(by_contexts[t], grad_gates[t], of.by_context, out=grad_contexts[t])
            asked = maps[t, :, gates:], weights[t], grad_contexts[t], grad_maps[t, :, gates:]
            sources.read_backward(*asked, grad_key, grad_v)
            grad_state[0].addmm_(grad_maps[t], joined)
        states = torch.cat([first[:1], tops[:-1]])
        grad_joined = grad_maps.flatten(0, 1).t() @ states.flatten(0, 1)
        return [
            *(grad_gates, grad_state, grad_key),
            weights.permute(1, 2, 0) @ grad_contexts.transpose(0, 1),
            None,
            grad_gates.flatten(0, 1).t() @ contexts.flatten(0, 1),
            grad_joined[:gates].clone(),
            grad_maps[:, :, :gates].sum((0, 1)),
            grad_joined[gates:].clone(),
            grad_v.sum(0),
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
    """States ``[T, B, H]`` and contexts ``[T, B, E]`` of all steps; None if a loop over steps is
    as fast.

    Args:
        cell: rnn, gru or lstm.
        scale: of the scores.
        words: embeddings of the target words ``[T, B, I]``.
        state: the initial state; each tensor ``[B, H]``.
        source: projected keys ``[B, S, D]``, values ``[B, S, E]``, and a mask of allowed positions
            ``[B, 1, S]``.
        by_word: weights ``[G·H, I]`` and bias ``[G·H]`` from words to the gates.
        weights: from the context to the gates ``[G·H, E]``, from the state to the gates
            ``[G·H, H]``, the bias of the state's product ``[G·H]``, from the state to the query
            ``[D, H]``, and v ``[D]``.
    """
    key, value, _ = source
    if not has_kernel(key) or not loops_are_faster(words, *state, key, value, *by_word, *weights):
        return None
    known = F.linear(words, *by_word)
    tops, contexts = _operator(known, torch.stack(state), *source, *weights, cell, scale)
    return tops, contexts
