"""A recurrent decoder's loop over the target with input feeding: one operator.

Step t reads the attentional vector h̃_{t-1}: its product is added to what is known of the gates; the
cell (in C) gives h_t; h_t's products with W_c, with the query's weights and with the recurrent ones
of the step after are one; attention (in C) and the tangent give h̃_t. Backwards as in
:mod:`~heedful.kernels.recurrent_unrolled`.

Shapes: B batch, T target positions, S source positions, H hidden, G gates, D width of queries and
keys, P parts of a state; an attentional vector and a value are H wide.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.kernels.formula_operators import Formula, FormulaOperator, Tensors
from heedful.kernels.recurrent_cell import CompiledCell, cell_step, loops_in_c, loops_pay
from heedful.kernels.source_attention import Sources, has_kernel, plain_source_attention


class FedWeights(NamedTuple):
    """What a step multiplies by."""

    by_feed: Tensor
    """``[G·H, H]``, of the gates for h̃_{t-1}."""
    by_state: Tensor
    """``[G·H, H]``, of the gates for h_{t-1}."""
    bias: Tensor
    """``[G·H]``, of the latter."""
    by_top: Tensor
    """``[H, H]``: W_c's part for h_t."""
    by_query: Tensor | None
    """``[D, H]``; None where h_t is the query itself."""
    vector: Tensor | None
    """v of an additive score ``[D]``; None for a dot product."""

    def joined(self) -> Tensor:
        """All that h_t is multiplied by: ``[G·H + H + D, H]``."""
        return torch.cat(
            [self.by_state, self.by_top, *([] if self.by_query is None else [self.by_query])]
        )


class _Given(NamedTuple):
    """The operator's tensors before the weights."""

    known: Tensor
    feed: Tensor
    state: Tensor
    key: Tensor
    value: Tensor
    allowed: Tensor


def _parts(tensors: Tensors) -> tuple[_Given, FedWeights]:
    return _Given(*tensors[:6]), FedWeights(*tensors[6:])


class Fed(Formula):
    """Attentional vectors ``[T, B, H]`` of all steps.

    Kept: the states with that before the first step ``[P, T + 1, B, H]``, the products with h, the
    gates, and the weights.
    """

    inputs = ", ".join(f"Tensor {name}" for name in (*_Given._fields, *FedWeights._fields[:4]))
    inputs += ", Tensor? by_query, Tensor? vector"
    settings = "str cell, float scale"
    outputs, kept = 1, 4

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

    def room(self, tensors: Tensors, settings: Sequence[Any]) -> list[Tensor]:
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

    def can_do(self, tensors: Tensors) -> bool:
        return loops_in_c(tensors)

    def run(self, tensors: Tensors, settings: Sequence[Any], made: Sequence[Tensor]) -> None:
        (of, by), (kind, scale) = _parts(tensors), settings
        feeds, states, maps, opened, weights = made
        gates, units = of.known.shape[2], feeds.shape[2]
        joined, feed = by.joined(), of.feed
        bias = torch.cat([by.bias, by.bias.new_zeros(len(joined) - gates)])
        states[:, 0] = of.state
        rows = torch.arange(of.known.shape[1])
        sources = Sources(of.key, of.value, of.allowed, rows, by.vector, scale)
        cell = CompiledCell(kind, units)
        asked = _asked(maps, states[0], gates + units)
        torch.addmm(bias, states[0, 0], joined.t(), out=maps[0])
        for t in range(len(of.known)):
            torch.addmm(of.known[t], feed, by.by_feed.t(), out=opened[t])
            before, after = list(states[:, t]), list(states[:, t + 1])
            cell.step(opened[t], opened[t], maps[t, :, :gates], before, after)
            torch.addmm(bias, after[0], joined.t(), out=maps[t + 1])
            sources.read(asked[t + 1], feeds[t], weights[t])
            feeds[t].add_(maps[t + 1, :, gates : gates + units]).tanh_()
            feed = feeds[t]

    def run_back(
        self,
        by: Sequence[Tensor],
        tensors: Tensors,
        made: Sequence[Tensor],
        settings: Sequence[Any],
    ) -> list[Tensor | None]:
        (of, weighted), (kind, scale) = _parts(tensors), settings
        (by_vectors,), (feeds, states, maps, opened, weights) = by, made
        (steps, rows, gates), units = opened.shape, feeds.shape[2]
        joined, asks = weighted.joined(), weighted.by_query is not None
        of_maps, of_gates = torch.zeros_like(maps), torch.empty_like(opened)
        of_contexts = opened.new_empty(steps, rows, units)
        of_key = torch.zeros_like(of.key, memory_format=torch.contiguous_format)
        of_v = of.key.new_zeros(rows, of.key.shape[2])
        of_state, of_feed = (
            opened.new_zeros(len(states), rows, units),
            opened.new_zeros(rows, units),
        )
        source = of.key, of.value, of.allowed, torch.arange(rows), weighted.vector, scale
        sources, cell = Sources(*source), CompiledCell(kind, units)
        asked = _asked(maps, states[0], gates + units)
        of_asked = _asked(of_maps, torch.empty_like(states[0]), gates + units)
        for t in reversed(range(steps)):
            torch.add(by_vectors[t], of_feed, out=of_contexts[t])
            of_contexts[t].mul_(1.0 - feeds[t].square())
            of_maps[t + 1, :, gates : gates + units] = of_contexts[t]
            queries = asked[t + 1], weights[t], of_contexts[t], of_asked[t + 1]
            sources.read_back(*queries, of_key, of_v)
            by_top = of_maps[t + 1] @ joined
            if not asks:
                by_top += of_asked[t + 1]
            now = opened[t], maps[t, :, :gates], list(states[:, t]), list(states[:, t + 1])
            grads = of_gates[t], of_maps[t, :, :gates]
            cell.step_back(*now, by_top, list(of_state), *grads)
            torch.mm(of_gates[t], weighted.by_feed, out=of_feed)
        of_state[0].addmm_(of_maps[0], joined)
        of_joined = of_maps.flatten(0, 1).t() @ states[0].flatten(0, 1)
        before = torch.cat([of.feed.unsqueeze(0), feeds[:-1]])
        return [
            *(of_gates, of_feed, of_state, of_key),
            weights.permute(1, 2, 0) @ of_contexts.transpose(0, 1),
            None,
            of_gates.flatten(0, 1).t() @ before.flatten(0, 1),
            of_joined[:gates].clone(),
            of_maps[:, :, :gates].sum((0, 1)),
            of_joined[gates : gates + units].clone(),
            of_joined[gates + units :].clone() if asks else None,
            None if weighted.vector is None else of_v.sum(0),
        ]


def _asked(maps: Tensor, tops: Tensor, first: int) -> Tensor:
    """All steps' queries: the last columns of ``maps``, or the states where there are none."""
    return maps[:, :, first:] if maps.shape[2] > first else tops


_operator = FormulaOperator("recurrent_fed", Fed())


def fed(
    cell: str,
    scale: float,
    words: Tensor,
    feed: Tensor,
    state: tuple[Tensor, ...],
    source: tuple[Tensor, ...],
    by_word: tuple[Tensor, Tensor],
    weights: FedWeights,
) -> Tensor | None:
    """Attentional vectors ``[T, B, H]`` of all steps; None where going step by step is as good.

    Args:
        cell: rnn, gru or lstm.
        scale: of the scores.
        words: the target's vectors ``[T, B, I]``.
        feed: h̃_0 ``[B, H]``.
        state: the state before the first step, each part ``[B, H]``.
        source: projected keys ``[B, S, D]``, values through their part of W_c ``[B, S, H]``, and
            which positions may be read ``[B, 1, S]``.
        by_word: of the gates for words ``[G·H, I]``, and their bias ``[G·H]``.
        weights: of the step.
    """
    key, value, _ = source
    if not has_kernel(key) or not loops_pay(words, feed, *state, key, value, *by_word, *weights):
        return None
    known = F.linear(words, *by_word)
    return _operator(known, feed, torch.stack(state), *source, *weights, cell, scale)[0]
