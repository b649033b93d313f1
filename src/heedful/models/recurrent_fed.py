"""A recurrent decoder's loop over the target with input feeding: one function of autograd.

Step t reads the attentional vector h̃_{t-1}: its product is added to what is known of the gates; the
cell (in C) gives h_t; h_t's products with W_c, with the query's weights and with the recurrent ones
of the step after are one; attention (in C) and the tangent give h̃_t. Backwards as in
:mod:`~heedful.models.recurrent_unrolled`. The plain form is the loop of
:mod:`~heedful.models.recurrent_decoders`.

Shapes: B batch, T target positions, S source positions, H hidden, G gates, D width of queries and
keys; an attentional vector and a value are H wide.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.attention.kernels.reading import Sources
from heedful.layers.cells import CompiledCell
from heedful.models.recurrent_unrolled import Loop


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


def fed(
    loop: Loop,
    known: Tensor,
    feed: Tensor,
    state: tuple[Tensor, ...],
    source: tuple[Tensor, Tensor],
    weights: FedWeights,
) -> Tensor:
    """Attentional vectors ``[T, B, H]`` of all steps; float32 on the CPU.

    Args:
        loop: which.
        known: what the target words give to the gates ``[T, B, G·H]``, biases included.
        feed: h̃_0 ``[B, H]``.
        state: the state before the first step, each part ``[B, H]``.
        source: projected keys ``[B, S, D]``, and values through their part of W_c ``[B, S, H]``.
        weights: of the step.
    """
    vectors: Tensor = _Fed.apply(  # type: ignore[no-untyped-call]
        loop, known, feed, *source, *weights, *state
    )
    return vectors


class _Fed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loop: Loop, known: Tensor, feed: Tensor, *given: Any) -> Tensor:
        key, value, *parts = given
        of, state = FedWeights(*parts[:6]), parts[6:]
        (steps, rows, gates), units = known.shape, feed.shape[1]
        joined = torch.cat(
            [of.by_state, of.by_top, *([] if of.by_query is None else [of.by_query])]
        )
        bias = torch.cat([of.bias, of.bias.new_zeros(len(joined) - gates)])
        states = [known.new_empty(steps + 1, rows, units) for _ in state]
        feeds = known.new_empty(steps + 1, rows, units)
        for part, first in zip([*states, feeds], [*state, feed], strict=True):
            part[0] = first
        maps = known.new_empty(steps + 1, rows, len(joined))
        opened = torch.empty_like(known)
        weights = known.new_empty(steps, rows, value.shape[1])
        sources = Sources(key, value, loop.allowed, torch.arange(rows), of.vector, loop.scale)
        cell = CompiledCell(loop.cell, units)
        asked = _asked(maps, states[0], gates + units)
        torch.addmm(bias, states[0][0], joined.t(), out=maps[0])
        for t in range(steps):
            torch.addmm(known[t], feeds[t], of.by_feed.t(), out=opened[t])
            before, after = [part[t] for part in states], [part[t + 1] for part in states]
            cell.step(opened[t], opened[t], maps[t, :, :gates], before, after)
            torch.addmm(bias, after[0], joined.t(), out=maps[t + 1])
            sources.read(asked[t + 1], feeds[t + 1], weights[t])
            feeds[t + 1].add_(maps[t + 1, :, gates : gates + units]).tanh_()
        ctx.loop, ctx.asks = loop, of.by_query is not None
        ctx.save_for_backward(
            key, value, of.by_feed, joined, of.vector, maps, opened, weights, feeds, *states
        )
        return feeds[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_vectors: Tensor) -> tuple[Tensor | None, ...]:
        key, value, by_feed, joined, vector, *made = ctx.saved_tensors
        maps, opened, weights, feeds, *states = made
        (steps, rows, gates), units = opened.shape, feeds.shape[2]
        of_maps, of_gates = torch.zeros_like(maps), torch.empty_like(opened)
        of_contexts, of_key = opened.new_empty(steps, rows, units), torch.zeros_like(key)
        of_v = key.new_zeros(rows, key.shape[2])
        of_state = [part.new_zeros(rows, units) for part in states]
        of_feed = opened.new_zeros(rows, units)
        sources = Sources(key, value, ctx.loop.allowed, torch.arange(rows), vector, ctx.loop.scale)
        cell = CompiledCell(ctx.loop.cell, units)
        asked = _asked(maps, states[0], gates + units)
        of_asked = _asked(of_maps, torch.empty_like(states[0]), gates + units)
        for t in reversed(range(steps)):
            torch.add(by_vectors[t], of_feed, out=of_contexts[t])
            of_contexts[t].mul_(1.0 - feeds[t + 1].square())
            of_maps[t + 1, :, gates : gates + units] = of_contexts[t]
            queries = asked[t + 1], weights[t], of_contexts[t], of_asked[t + 1]
            sources.read_back(*queries, of_key, of_v)
            by_top = of_maps[t + 1] @ joined
            if not ctx.asks:
                by_top += of_asked[t + 1]
            before, after = [part[t] for part in states], [part[t + 1] for part in states]
            given = by_top, of_state, of_gates[t], of_maps[t, :, :gates]
            cell.step_back(opened[t], maps[t, :, :gates], before, after, *given)
            torch.mm(of_gates[t], by_feed, out=of_feed)
        of_state[0].addmm_(of_maps[0], joined)
        of_joined = of_maps.flatten(0, 1).t() @ states[0].flatten(0, 1)
        return (
            *(None, of_gates, of_feed, of_key),
            weights.permute(1, 2, 0) @ of_contexts.transpose(0, 1),
            of_gates.flatten(0, 1).t() @ feeds[:-1].flatten(0, 1),
            of_joined[:gates],
            of_maps[:, :, :gates].sum((0, 1)),
            of_joined[gates : gates + units],
            of_joined[gates + units :] if ctx.asks else None,
            None if vector is None else of_v.sum(0),
            *of_state,
        )


def _asked(maps: Tensor, tops: Tensor, first: int) -> Tensor:
    """All steps' queries: the last columns of ``maps``, or the states where there are none."""
    return maps[:, :, first:] if maps.shape[2] > first else tops
