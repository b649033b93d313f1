"""Additive attention in blocks of rows, whose weights are recomputed in the backward pass.

Memory therefore grows with the number of keys instead of queries × keys. A block contains whole
rows, so no online softmax is needed.

Shapes: n entries (all leading dimensions flattened), Q queries, K keys, D units, E width of values.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.basics.device import without_autocast
from heedful.basics.thread_contention import waiting_time
from heedful.kernels.additive_selection import tiles_for
from heedful.kernels.additive_tiles import Tiles, plain_scores

_BLOCK = 1 << 19  # scores of a block of rows

RowsOf = Callable[[slice | None], Tensor | None]
"""Maps rows (None for all) to a mask ``[n or 1, q or 1, K or 1]`` of booleans, true = may attend;
None if they may attend to all keys."""


def rows_of_table(allowed: Tensor | None) -> RowsOf:
    """A :data:`RowsOf` function that slices a mask of all rows."""

    def rows_of(rows: slice | None) -> Tensor | None:
        if allowed is None or rows is None:
            return allowed
        return allowed if allowed.shape[1] == 1 else allowed[:, rows]

    return rows_of


def span(allowed: Tensor, keys: int) -> slice:
    """The range from the first to the last key that any row of ``allowed [.., q, k]`` allows."""
    if allowed.shape[-1] != keys:
        return slice(0, keys)  # one column, which broadcasts
    there = allowed.reshape(allowed.shape[:-1].numel(), keys).any(0).nonzero()
    return slice(int(there[0]), int(there[-1]) + 1) if len(there) else slice(0, 0)


class _Block:
    """A block of rows: its mask, weights and dropout."""

    def __init__(self, rows: slice, allowed: Tensor | None, keys: int) -> None:
        self.rows, self.allowed = rows, allowed
        self.keys = slice(0, keys)
        if allowed is not None and allowed.device.type == "cpu" and allowed.shape[-1] == keys:
            # Skip the keys at both ends to which no row of the block may attend.
            self.keys = span(allowed, keys)
            self.allowed = allowed[..., self.keys]

    def weights(self, scores: Tensor) -> Tensor:
        """The softmax of ``scores``, as in ``masked_softmax``; ``scores`` is overwritten."""
        if self.allowed is None:
            return torch.softmax(scores, -1)
        scores.masked_fill_(~self.allowed, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, -1).masked_fill_(~self.allowed, 0.0)

    def differentiable_weights(self, scores: Tensor) -> Tensor:
        """As :meth:`weights`, but not in place."""
        if self.allowed is None:
            return torch.softmax(scores, -1)
        scores = scores.masked_fill(~self.allowed, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, -1).masked_fill(~self.allowed, 0.0)

    def dropout_factors(self, like: Tensor, dropout: float, seed: Tensor) -> Tensor | None:
        """The dropout factors 0 or 1/(1 − dropout) of the weights; the same in every call."""
        if not dropout:
            return None
        generator = torch.Generator(like.device).manual_seed(int(seed) + self.rows.start)
        drawn = torch.rand(like.shape, generator=generator, device=like.device)
        return (drawn >= dropout).to(like.dtype) / (1.0 - dropout)


@dataclass(frozen=True)
class AdditiveRows:
    """The inputs of additive attention, and its forward and backward pass."""

    a: Tensor
    """Projected queries ``[n, Q, D]``."""
    b: Tensor
    """Projected keys ``[n, K, D]``."""
    value: Tensor
    """``[n, K, E]``"""
    v: Tensor
    """``[D]``"""
    rows_of: RowsOf
    """Returns the mask of some rows."""
    scale: float
    """Factor of the scores, before the softmax."""
    dropout: float
    """Probability that a weight is set to zero."""
    seed: Tensor
    """Seed of the dropout, an integer."""

    def _blocks(self) -> Iterator[_Block]:
        n, queries, _ = self.a.shape
        keys = self.b.shape[1]
        step = max(1, _BLOCK // max(1, n * keys))
        for start in range(0, queries, step):
            rows = slice(start, min(start + step, queries))
            block = _Block(rows, self.rows_of(rows), keys)
            if block.keys.stop > block.keys.start:
                yield block

    def context(self) -> Tensor:
        """``[n, Q, E]``."""
        threads = torch.get_num_threads()
        with waiting_time.kernel(), without_autocast(self.a):
            return self._context(tiles_for(self.a, self.b, self.v, threads))

    def _context(self, tiles: Tiles) -> Tensor:
        context = self.value.new_zeros(*self.a.shape[:2], self.value.shape[2])
        for block in self._blocks():
            weights = block.weights(tiles.scores(block.rows, block.keys, self.scale))
            dropout_factors = block.dropout_factors(weights, self.dropout, self.seed)
            used = weights if dropout_factors is None else weights * dropout_factors
            context[:, block.rows] = used @ self.value[:, block.keys]
        return context

    def plain(self) -> Tensor:
        """The plain reference, which PyTorch can differentiate twice.

        Stores ``[n, q, K, D]`` values for a block of q rows, or for all rows if gradients are
        needed.
        """
        context = self.value.new_zeros(*self.a.shape[:2], self.value.shape[2])
        for block in self._blocks():
            scores = plain_scores(self.a[:, block.rows], self.b[:, block.keys], self.v)
            weights = block.differentiable_weights(self.scale * scores)
            dropout_factors = block.dropout_factors(weights, self.dropout, self.seed)
            used = weights if dropout_factors is None else weights * dropout_factors
            context[:, block.rows] = used @ self.value[:, block.keys]
        return context

    def gradients(self, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The gradients of a, b, value and v, given ``grad = ∂L/∂context [n, Q, E]``."""
        threads = torch.get_num_threads()
        with waiting_time.kernel(), without_autocast(self.a):
            tiles = tiles_for(self.a, self.b, self.v, threads)
            return self._gradients(tiles, grad.to(self.a.dtype))

    def _gradients(self, tiles: Tiles, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        tiles.start_gradients()
        by_value = torch.zeros_like(self.value)
        for block in self._blocks():
            weights = block.weights(tiles.scores(block.rows, block.keys, self.scale))
            dropout_factors = block.dropout_factors(weights, self.dropout, self.seed)
            above = grad[:, block.rows]
            used = weights if dropout_factors is None else weights * dropout_factors
            by_value[:, block.keys] += used.transpose(1, 2) @ above
            g = above @ self.value[:, block.keys].transpose(1, 2)  # ∂L/∂(weights after dropout)
            if dropout_factors is not None:
                g *= dropout_factors
            if block.allowed is not None:
                g.masked_fill_(~block.allowed, 0.0)  # A masked value can make it infinite.
            # The gradient of softmax. Masked weights are zero, and so are their gradients.
            g -= (g * weights).sum(-1, keepdim=True)
            g *= weights
            tiles.add_gradients(block.rows, block.keys, g.mul_(self.scale))
        da, db, dv = tiles.collect()
        return da, db, by_value, dv
