"""A recurrent decoder's loop over the target where attention comes first: one function of autograd.

Step t, from the state h_{t-1} on: its products with the recurrent weights and with the query's are
one product; attention reads the source (in C); the context's product is added to what is known of
the gates; the cell (in C) gives h_t. Backwards the steps leave their gradients side by side, and
each weight's follows from all of them in one product. The plain form is the loop of
:mod:`~heedful.models.recurrent_decoders`.

Shapes: B batch, T target positions, S source positions, H hidden, G gates, D width of queries and
keys, E of values.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.attention.kernels.reading import Sources
from heedful.layers.cells import CompiledCell


class Loop(NamedTuple):
    """What of a loop is no weight."""

    cell: str
    """rnn, gru or lstm."""
    allowed: Tensor
    """Which positions may be read ``[B, 1, S]``."""
    scale: float
    """Of the scores."""


def unrolled(
    loop: Loop,
    known: Tensor,
    state: tuple[Tensor, ...],
    source: tuple[Tensor, Tensor],
    weights: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """States ``[T, B, H]`` and contexts ``[T, B, E]`` of all steps; float32 on the CPU.

    Args:
        loop: which.
        known: what the target words give to the gates ``[T, B, G·H]``, biases included.
        state: the state before the first step, each part ``[B, H]``.
        source: projected keys ``[B, S, D]`` and values ``[B, S, E]``.
        weights: of the gates for the context ``[G·H, E]`` and for the state ``[G·H, H]``, the bias
            of the latter ``[G·H]``, the query's ``[D, H]``, and v ``[D]``.
    """
    tops, contexts = _Unrolled.apply(  # type: ignore[no-untyped-call]
        loop, known, *source, *weights, *state
    )
    return tops, contexts


class _Unrolled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loop: Loop, known: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        key, value, by_context, by_state, bias, by_query, v, *state = given
        (steps, rows, gates), width = known.shape, len(v)
        units = state[0].shape[1]
        joined = torch.cat([by_state, by_query])
        joined_bias = torch.cat([bias, bias.new_zeros(width)])
        states = [known.new_empty(steps + 1, rows, units) for _ in state]
        for part, first in zip(states, state, strict=True):
            part[0] = first
        maps = known.new_empty(steps, rows, gates + width)
        opened = torch.empty_like(known)
        contexts = known.new_empty(steps, rows, value.shape[2])
        weights = known.new_empty(steps, rows, value.shape[1])
        sources = Sources(key, value, loop.allowed, torch.arange(rows), v, loop.scale)
        cell = CompiledCell(loop.cell, units)
        for t in range(steps):
            torch.addmm(joined_bias, states[0][t], joined.t(), out=maps[t])
            sources.read(maps[t, :, gates:], contexts[t], weights[t])
            torch.addmm(known[t], contexts[t], by_context.t(), out=opened[t])
            before, after = [part[t] for part in states], [part[t + 1] for part in states]
            cell.step(opened[t], opened[t], maps[t, :, :gates], before, after)
        ctx.loop = loop
        kept = key, value, by_context, joined, v, maps, opened, contexts, weights
        ctx.save_for_backward(*kept, *states)
        return states[0][1:], contexts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_tops: Tensor, by_contexts: Tensor) -> tuple[Tensor | None, ...]:
        key, value, by_context, joined, v, *made = ctx.saved_tensors
        maps, opened, contexts, weights, *states = made
        (steps, rows, gates), units = opened.shape, states[0].shape[2]
        of_maps, of_gates = torch.empty_like(maps), torch.empty_like(opened)
        of_contexts, of_key = torch.empty_like(contexts), torch.zeros_like(key)
        of_v = v.new_zeros(rows, len(v))
        of_state = [part.new_zeros(rows, units) for part in states]
        by_tops = by_tops.contiguous()
        sources = Sources(key, value, ctx.loop.allowed, torch.arange(rows), v, ctx.loop.scale)
        cell = CompiledCell(ctx.loop.cell, units)
        for t in reversed(range(steps)):
            before, after = [part[t] for part in states], [part[t + 1] for part in states]
            gone, back = maps[t, :, :gates], of_maps[t, :, :gates]
            cell.step_back(opened[t], gone, before, after, by_tops[t], of_state, of_gates[t], back)
            torch.addmm(by_contexts[t], of_gates[t], by_context, out=of_contexts[t])
            asked = maps[t, :, gates:], weights[t], of_contexts[t], of_maps[t, :, gates:]
            sources.read_back(*asked, of_key, of_v)
            of_state[0].addmm_(of_maps[t], joined)
        of_joined = of_maps.flatten(0, 1).t() @ states[0][:-1].flatten(0, 1)
        return (
            None,
            of_gates,
            of_key,
            weights.permute(1, 2, 0) @ of_contexts.transpose(0, 1),
            of_gates.flatten(0, 1).t() @ contexts.flatten(0, 1),
            of_joined[:gates],
            of_maps[:, :, :gates].sum((0, 1)),
            of_joined[gates:],
            of_v.sum(0),
            *of_state,
        )
