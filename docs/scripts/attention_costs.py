"""What a forward pass costs: operators counted while it runs, nothing timed.

- FLOP: a multiply-add is two; any other addition, comparison, division, exponential or tangent is
  one; sorting n numbers is n·log₂n. Moving, choosing and filling numbers is none.
- moved: each operator reads its inputs once and writes its results once.
- held: the most that results take at one time, what is given and what comes out apart.
- kept: what is kept for the backward pass, what is given and what comes out apart.
"""

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from heedful.kernels import additive_compiled as compiled

LENGTH, WIDTH = 1024, 64
"""Queries and keys, and the width of each vector. A byte a pair is then a MiB in all."""


@dataclass(frozen=True)
class Cost:
    """Numbers a (query, key) pair."""

    flop: float
    moved: float
    held: float
    kept: float


@dataclass
class _Counts:
    flop: float = 0.0
    moved: int = 0
    now: int = 0
    most: int = 0
    known: set[int] = field(default_factory=set)


_FREE = ("masked_fill", "gather", "scatter", "index", "embedding", "clone", "copy", "fill", "zero")
_FREE += ("where", "arange", "cat", "pad", "empty", "new_", "full", "ones", "eye", "tril", "stack")


class Counting(TorchDispatchMode):
    """Counts all operators that run inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = _Counts()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [part for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
        made = [part for part in tree_leaves(result) if isinstance(part, Tensor)]
        storages = {part.untyped_storage().data_ptr() for part in given}
        aliases = [argument.alias_info for argument in func._schema.arguments]
        writes = any(alias is not None and alias.is_write for alias in aliases)
        if not writes and all(part.untyped_storage().data_ptr() in storages for part in made):
            return result  # A view: nothing moves.
        self.counts.moved += sum(map(size, {id(part): part for part in [*given, *made]}.values()))
        self.counts.flop += flop(func, args, kwargs or {}, given, made)
        for part in made:
            self._see(part)
        return result

    def _see(self, part: Tensor) -> None:
        counts, storage = self.counts, part.untyped_storage()
        at, bytes_ = storage.data_ptr(), storage.nbytes()
        if at in counts.known:
            return
        counts.known.add(at)
        counts.now += bytes_
        counts.most = max(counts.most, counts.now)

        def forget() -> None:
            counts.known.discard(at)
            counts.now -= bytes_

        weakref.finalize(storage, forget)


def size(part: Tensor) -> int:
    """Bytes that are there to be read: what is repeated by a stride of zero counts once."""
    there = math.prod(n for n, step in zip(part.shape, part.stride(), strict=True) if step)
    return there * part.element_size()


def flop(func: Any, args: Any, kwargs: Any, given: list[Tensor], made: list[Tensor]) -> float:
    name = func._schema.name.removeprefix("aten::")
    results = max((part.numel() for part in made), default=0)
    if name in ("mm", "bmm", "addmm", "mv", "dot"):
        return 2.0 * results * given[-2 if name != "addmm" else 1].shape[-1]
    if name == "linalg_solve_triangular":
        return float(results * given[0].shape[-1])
    if name == "convolution":
        return 2.0 * results * args[1].shape[1:].numel()
    if name.startswith("_scaled_dot_product"):
        q, k, v = args[:3]
        pairs = q.shape[:-1].numel() * k.shape[-2]
        if len(args) > 4 and args[4]:  # causal: what lies after a query is left out
            pairs = q.shape[:-1].numel() * (k.shape[-2] + 1) / 2
        added = kwargs.get("attn_mask") is not None
        return pairs * (2 * q.shape[-1] + 5 + added + 2 * v.shape[-1])
    if "softmax" in name:  # largest, subtract, exp, sum, divide
        return 5.0 * results
    if name in ("sort", "topk"):
        return results * math.log2(max(2, given[0].shape[-1]))
    if name in ("heedful::squared_distances", "_cdist_forward"):
        # Subtract, square, add; a root and its square.
        return results * (3.0 * args[0].shape[-1] + 2)
    if name.startswith(_FREE):
        return 0.0
    return float(max([results, *(part.numel() for part in given)]))


@contextmanager
def _counting_compiled(counts: _Counts) -> Iterator[None]:
    """Counts the reductions in C too: for each (query, key, unit) there are six operations.

    x = 1 + eᵃ·eᵇ (2), r = 1/x (1), r − ½ (1), and the sum of v·r (2).
    """
    whole = compiled.CompiledTiles.weighted

    def weighted(self: compiled.CompiledTiles, rows: slice, keys: slice) -> Tensor:
        units = self.padded_v.numel()
        triples = self.a.shape[0] * (rows.stop - rows.start) * (keys.stop - keys.start) * units
        counts.flop += 6.0 * triples
        out = whole(self, rows, keys)
        read = [*self._prepare(rows), self.padded_v]
        counts.moved += sum(map(size, [*read, out]))
        return out

    compiled.CompiledTiles.weighted = weighted  # type: ignore[method-assign]
    try:
        yield
    finally:
        compiled.CompiledTiles.weighted = whole  # type: ignore[method-assign]


Forward = Callable[[Tensor, Tensor, Tensor], Tensor]


def cost(forward: Forward, weights: Iterable[Tensor] = ()) -> Cost:
    """What ``forward(query, key, value)`` costs, for one head of float32 numbers."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, LENGTH, WIDTH) for _ in range(3))
    pairs = LENGTH**2
    with torch.no_grad(), Counting() as counting, _counting_compiled(counting.counts):
        result = forward(query, key, value)
    counts = counting.counts
    held = counts.most - result.untyped_storage().nbytes()
    return Cost(
        counts.flop / pairs,
        counts.moved / pairs,
        held / pairs,
        _kept(forward, [query, key, value], weights) / pairs,
    )


def _kept(forward: Forward, given: list[Tensor], weights: Iterable[Tensor]) -> int:
    given = [part.requires_grad_() for part in given]
    kept: dict[int, int] = {}
    alive = []

    def keep(part: Tensor) -> Tensor:
        storage = part.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        alive.append(part)  # So that no address is used twice.
        return part

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda part: part):
        result = forward(*given)
    for part in [*given, *weights, result]:
        kept.pop(part.untyped_storage().data_ptr(), None)
    return sum(kept.values())
