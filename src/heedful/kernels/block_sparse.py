"""Causal dot-product attention to selected blocks of keys, without the scores of other blocks.

For each block of keys, the queries that selected it are gathered, so that all products are those of
matrices (Lu et al. 2025, "MoBA", section 2.3). The scores of a head, ``[Q, C · size]``, are
recomputed in the backward pass.

Shapes: n heads of queries (all leading dimensions flattened), m heads of keys, Q queries, K keys,
D width, E width of values, C blocks selected by each query.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.basics.device import without_autocast


def block_sparse_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocks: Tensor,
    there: Tensor,
    *,
    size: int,
    scale: float,
    first: int,
) -> Tensor:
    """The context ``[n, Q, E]``, of the values' type.

    Args:
        query: ``[n, Q, D]``.
        key: ``[m, K, D]``, each for n / m heads of queries, in order.
        value: ``[m, K, E]``.
        blocks: indices of the selected blocks ``[n, Q, C]``, the query's own first.
        there: whether the query may attend to the block, ``[n, Q, C]``.
        size: number of keys of a block.
        scale: factor on the dot products.
        first: position of the first query.
    """
    with without_autocast(query):
        given = (part.float() if part.itemsize < 4 else part for part in (query, key, value))
        context: Tensor = _BlockSparse.apply(*given, blocks, there, size, scale, first)  # type: ignore[no-untyped-call]
        return context.to(value.dtype)


class _Part(NamedTuple):
    """A block of keys and the queries that selected it."""

    keys: slice
    queries: Tensor
    """Indices ``[M]``."""
    places: Tensor
    """Indices ``[M]`` of their scores among the Q · C of the head."""


class _Head:
    """One head of queries: which queries selected which block."""

    def __init__(self, blocks: Tensor, there: Tensor, keys: int, size: int, first: int) -> None:
        self.queries, self.count = blocks.shape
        self.keys, self.size, self.there = keys, size, there
        flat = blocks.masked_fill(~there, -(-keys // size)).flatten()
        self.order = flat.argsort(stable=True)
        self.edges = flat.bincount(minlength=-(-keys // size) + 1).cumsum(0).tolist()
        places = torch.arange(first, first + self.queries, device=blocks.device)
        within = torch.arange(size, device=blocks.device)
        self.later = within > (places % size).unsqueeze(-1)  # [Q, size], in the query's own block

    def parts(self) -> Iterator[_Part]:
        """The blocks of keys that some query selected."""
        start = 0
        for number, stop in enumerate(self.edges[:-1]):
            if stop > start:
                chosen = self.order[start:stop]
                begin = number * self.size
                keys = slice(begin, min(begin + self.size, self.keys))
                yield _Part(keys, chosen // self.count, chosen)
            start = stop

    def weights(self, query: Tensor, key: Tensor, scale: float) -> Tensor:
        """The weights ``[Q · C, size]`` of ``query [Q, D]`` and ``key [K, D]``."""
        scores = query.new_full((self.queries * self.count, self.size), float("-inf"))
        query = query * scale
        for part in self.parts():
            found = query.index_select(0, part.queries) @ key[part.keys].T
            rest = self.size - found.shape[-1]
            found = F.pad(found, (0, rest), value=float("-inf")) if rest else found
            scores.index_copy_(0, part.places, found)
        of_query = scores.view(self.queries, self.count, self.size)
        of_query[:, 0].masked_fill_(self.later, float("-inf"))
        whole = of_query.view(self.queries, -1)
        return torch.softmax(whole, -1).view_as(scores)


class _BlockSparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        query, key, value, blocks, there, size, scale, first = given
        context: Tensor = query.new_zeros(*query.shape[:-1], value.shape[-1])
        each = query.shape[0] // key.shape[0]
        for n in range(query.shape[0]):
            head = _Head(blocks[n], there[n], key.shape[1], size, first)
            weights = head.weights(query[n], key[n // each], scale)
            for part in head.parts():
                values = value[n // each, part.keys]
                used = weights.index_select(0, part.places)[:, : len(values)]
                context[n].index_add_(0, part.queries, used @ values)
        ctx.save_for_backward(query, key, value, blocks, there, context)
        ctx.settings = size, scale, first
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, blocks, there, context = ctx.saved_tensors
        size, scale, first = ctx.settings
        of_query, of_key, of_value = (torch.zeros_like(part) for part in (query, key, value))
        each = query.shape[0] // key.shape[0]
        for n in range(query.shape[0]):
            m, above = n // each, grads[0][n]
            head = _Head(blocks[n], there[n], key.shape[1], size, first)
            weights = head.weights(query[n], key[m], scale)
            mean = (above * context[n]).sum(-1, keepdim=True)  # of the weights' gradients
            for part in head.parts():
                keys, values = key[m, part.keys], value[m, part.keys]
                used = weights.index_select(0, part.places)[:, : len(keys)]
                chosen = above.index_select(0, part.queries)
                of_value[m, part.keys] += used.T @ chosen
                of_score = chosen @ values.T - mean.index_select(0, part.queries)
                of_score.mul_(used).mul_(scale)
                of_query[n].index_add_(0, part.queries, of_score @ keys)
                of_key[m, part.keys] += of_score.T @ query[n].index_select(0, part.queries)
        return of_query, of_key, of_value, None, None, None, None, None
