"""A recurrent decoder's loop over the target with input feeding, as one operator.

Step t multiplies the attentional vector h̃_{t-1} by its weights and adds the product to the
precomputed gates of the target word. The cell (in C) computes h_t. A single product multiplies h_t
by W_c, by the query's weights and by the recurrent weights of the next step. Attention (in C) and
tanh give h̃_t. The backward pass works as in :mod:`~heedful.kernels.recurrent_unrolled`.

Shapes: B batch, T target positions, S source positions, H hidden size, G gates, D width of queries
and keys, P tensors in a state. Attentional vectors and values have width H.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.kernels.formula_operators import Formula, FormulaOperator, Tensors
from heedful.kernels.recurrent_cell import CompiledCell, cell_step, loops_are_faster, loops_in_c
from heedful.kernels.source_attention import Sources, has_kernel, plain_source_attention


class InputFeedingWeights(NamedTuple):
    """The weights of a step."""

    by_feed: Tensor
    """``[G·H, H]``: from h̃_{t-1} to the gates."""
    by_state: Tensor
    """``[G·H, H]``: from h_{t-1} to the gates."""
    bias: Tensor
    """``[G·H]``: added to the product with h_{t-1}."""
    by_top: Tensor
    """``[H, H]``: the part of W_c for h_t."""
    by_query: Tensor | None
    """``[D, H]``: from h_t to the query; None if h_t is the query."""
    vector: Tensor | None
    """v ``[D]`` of an additive score; None for a dot product."""

    def joined(self) -> Tensor:
        """All weights that multiply h_t: ``[G·H + H + D, H]``."""
        return torch.cat(
            [self.by_state, self.by_top, *([] if self.by_query is None else [self.by_query])]
        )


class _Inputs(NamedTuple):
    """The operator's tensors other than the weights."""

    known: Tensor
    feed: Tensor
    state: Tensor
    key: Tensor
    value: Tensor
    allowed: Tensor


def _parts(tensors: Tensors) -> tuple[_Inputs, InputFeedingWeights]:
    return _Inputs(*tensors[:6]), InputFeedingWeights(*tensors[6:])


class InputFeeding(Formula):
    """Attentional vectors ``[T, B, H]`` of all steps.

    Saved for the backward pass: all states, including the initial one ``[P, T + 1, B, H]``, the
    products with h, the gates and the attention weights.
    """

    inputs = ", ".join(
        f"Tensor {name}" for name in (*_Inputs._fields, *InputFeedingWeights._fields[:4])
    )
    inputs += ", Tensor? by_query, Tensor? vector"
    settings = "str cell, float scale"
    outputs, saved_count = 1, 4

    def plain(self, tensors: Tensors, settings: Sequence[Any]) -> tuple[Tensor, ...]:
        (of, by), (cell, scale) = _parts(tensors), settings
        state, feed, vectors = of.state.unbind(0), of.feed, []
        source = of.key, of.value, of.allowed, by.vector, scale
        for words in of.known.unbind(0):
            gates = words + F.linear(feed, by.by_feed)
            state = cell_step(cell, gates, F.linear(state[0], by.by_state, by.bias), state)
            query = state[0] if by.by_query is None else F.linear(state[0], by.by_query)
            context = plain_source_attention(query, *source)
            feed = torch.tanh(F.linear(state[0], by.by_top) + context)
            vectors.append(feed)
        return (torch.stack(vectors),)

    def empty_outputs(self, tensors: Tensors, settings: Sequence[Any]) -> list[Tensor]:
        of, by = _parts(tensors)
        (steps, rows, gates), empty = of.known.shape, of.known.new_empty
        parts, _, units = of.state.shape
        joined = gates + units + (0 if by.by_query is None else len(by.by_query))
        return [
            empty(steps, rows, units),
            empty(parts, steps + 1, rows, units),
            empty(steps + 1, rows, joined),
            empty(steps, rows, gates),
            empty(steps, rows, of.value.shape[1]),
        ]

    def is_supported(self, tensors: Tensors) -> bool:
        return loops_in_c(tensors)

    def run(self, tensors: Tensors, settings: Sequence[Any], buffers: Sequence[Tensor]) -> None:
        (of, by), (kind, scale) = _parts(tensors), settings
        feeds, states, maps, saved_gates, weights = buffers
        gates, units = of.known.shape[2], feeds.shape[2]
        joined, feed = by.joined(), of.feed
        bias = torch.cat([by.bias, by.bias.new_zeros(len(joined) - gates)])
        states[:, 0] = of.state
        rows = torch.arange(of.known.shape[1])
        sources = Sources(of.key, of.value, of.allowed, rows, by.vector, scale)
        cell = CompiledCell(kind, units)
        queries = _queries(maps, states[0], gates + units)
        torch.addmm(bias, states[0, 0], joined.t(), out=maps[0])
        for t in range(len(of.known)):
            torch.addmm(of.known[t], feed, by.by_feed.t(), out=saved_gates[t])
            before, after = list(states[:, t]), list(states[:, t + 1])
            cell.step(saved_gates[t], saved_gates[t], maps[t, :, :gates], before, after)
            torch.addmm(bias, after[0], joined.t(), out=maps[t + 1])
            sources.read(queries[t + 1], feeds[t], weights[t])
            feeds[t].add_(maps[t + 1, :, gates : gates + units]).tanh_()
            feed = feeds[t]

    def backward_in_c(
        self,
        by: Sequence[Tensor],
        tensors: Tensors,
        buffers: Sequence[Tensor],
        settings: Sequence[Any],
    ) -> list[Tensor | None]:
        (of, weighted), (kind, scale) = _parts(tensors), settings
        (grad_vectors,), (feeds, states, maps, saved_gates, weights) = by, buffers
        (steps, rows, gates), units = saved_gates.shape, feeds.shape[2]
        joined, asks = weighted.joined(), weighted.by_query is not None
        grad_maps, grad_gates = torch.zeros_like(maps), torch.empty_like(saved_gates)
        grad_contexts = saved_gates.new_empty(steps, rows, units)
        grad_key = torch.zeros_like(of.key, memory_format=torch.contiguous_format)
        grad_v = of.key.new_zeros(rows, of.key.shape[2])
        grad_state, grad_feed = (
            saved_gates.new_zeros(len(states), rows, units),
            saved_gates.new_zeros(rows, units),
        )
        source = of.key, of.value, of.allowed, torch.arange(rows), weighted.vector, scale
        sources, cell = Sources(*source), CompiledCell(kind, units)
        queries = _queries(maps, states[0], gates + units)
        grad_queries = _queries(grad_maps, torch.empty_like(states[0]), gates + units)
        for t in reversed(range(steps)):
            torch.add(grad_vectors[t], grad_feed, out=grad_contexts[t])
            grad_contexts[t].mul_(1.0 - feeds[t].square())
            grad_maps[t + 1, :, gates : gates + units] = grad_contexts[t]
            read = queries[t + 1], weights[t], grad_contexts[t], grad_queries[t + 1]
            sources.read_backward(*read, grad_key, grad_v)
            by_top = grad_maps[t + 1] @ joined
            if not asks:
                by_top += grad_queries[t + 1]
            now = saved_gates[t], maps[t, :, :gates], list(states[:, t]), list(states[:, t + 1])
            grads = grad_gates[t], grad_maps[t, :, :gates]
            cell.step_backward(*now, by_top, list(grad_state), *grads)
            torch.mm(grad_gates[t], weighted.by_feed, out=grad_feed)
        grad_state[0].addmm_(grad_maps[0], joined)
        grad_joined = grad_maps.flatten(0, 1).t() @ states[0].flatten(0, 1)
        before = torch.cat([of.feed.unsqueeze(0), feeds[:-1]])
        return [
            *(grad_gates, grad_feed, grad_state, grad_key),
            weights.permute(1, 2, 0) @ grad_contexts.transpose(0, 1),
            None,
            grad_gates.flatten(0, 1).t() @ before.flatten(0, 1),
            grad_joined[:gates].clone(),
            grad_maps[:, :, :gates].sum((0, 1)),
            grad_joined[gates : gates + units].clone(),
            grad_joined[gates + units :].clone() if asks else None,
            None if weighted.vector is None else grad_v.sum(0),
        ]


def _queries(maps: Tensor, tops: Tensor, first: int) -> Tensor:
    """The queries of all steps: the last columns of ``maps``, or the states if it has none."""
    return maps[:, :, first:] if maps.shape[2] > first else tops


_operator = FormulaOperator("recurrent_input_feeding", InputFeeding())


def input_feeding_loop(
    cell: str,
    scale: float,
    words: Tensor,
    feed: Tensor,
    state: tuple[Tensor, ...],
    source: tuple[Tensor, ...],
    by_word: tuple[Tensor, Tensor],
    weights: InputFeedingWeights,
) -> Tensor | None:
    """Attentional vectors ``[T, B, H]`` of all steps; None if a loop over steps is as fast.

    Args:
        cell: rnn, gru or lstm.
        scale: of the scores.
        words: embeddings of the target words ``[T, B, I]``.
        feed: h̃_0 ``[B, H]``.
        state: the initial state; each tensor ``[B, H]``.
        source: projected keys ``[B, S, D]``, values multiplied by their part of W_c
            ``[B, S, H]``, and a mask of allowed positions ``[B, 1, S]``.
        by_word: weights ``[G·H, I]`` and bias ``[G·H]`` from words to the gates.
        weights: the weights of a step.
    """
    key, value, _ = source
    tensors = (words, feed, *state, key, value, *by_word, *weights)
    if not has_kernel(key) or not loops_are_faster(*tensors):
        return None
    known = F.linear(words, *by_word)
    return _operator(known, feed, torch.stack(state), *source, *weights, cell, scale)[0]
