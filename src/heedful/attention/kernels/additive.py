"""Additive attention at the price of a dot product: softmax(vᵀ tanh(q + k)) · values, by rows.

A block of rows is scored, normalized, used and forgotten, forward and again backward, so memory
grows with the number of keys, not with queries × keys. A row is always whole, so the softmax is the
usual one. Scores come from :class:`~.tiles.Tiles`: in PyTorch, in C on the CPU, or in Triton.

Shapes: n entries (all leading dimensions in one), Q queries, K keys, D units, E values' width.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from heedful.attention.kernels import compiled
from heedful.attention.kernels.dot import span
from heedful.attention.kernels.tiles import PlainTiles, Tiles
from heedful.attention.masks import Grid, Mask, split_mask

Kernel = Literal["plain", "tiles", "compiled", "triton"]

_SMALL = 1 << 18  # (query, key, unit) triples below which the plain formula is the quickest
_BLOCK = 1 << 20  # scores of a block of rows
_chosen: Kernel | None = None


@contextmanager
def use_kernel(kernel: Kernel | None) -> Iterator[None]:
    """Compute additive scores by one way while the block runs: for tests, benchmarks and doubts.

    Args:
        kernel: ``plain`` (the formula, whole), ``tiles`` (PyTorch), ``compiled`` (C, on the CPU in
            float32), ``triton`` (NVIDIA in float32), or None: the fastest there is.

    Example:
        >>> with use_kernel("plain"):
        ...     additive_scores(torch.zeros(1, 2), torch.zeros(3, 2), torch.ones(2))
        tensor([[0., 0., 0.]])
    """
    global _chosen
    before, _chosen = _chosen, kernel
    try:
        yield
    finally:
        _chosen = before


def plain_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """``vᵀ tanh(query + key)`` as it is written; holds ``[.., Q, K, D]`` numbers."""
    both = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))  # [.., Q, K, D]
    return both @ v.to(both.dtype)


def additive_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """``vᵀ tanh(query + key)`` for projected ``query [.., Q, D]``, ``key [.., K, D]``, ``v [D]``.

    Holds ``[.., Q, K]`` numbers and no more, forward and backward, unless the whole is small.
    """
    if _plainly(query, key):
        return plain_scores(query, key, v)
    entries = _Entries(query, key)
    a, b = entries.flat(query), entries.flat(key)
    scores: Tensor = torch.ops.heedful.additive_scores(a, b, v.to(a.dtype))
    return scores.view(*entries.leading, *scores.shape[1:]).to(query.dtype)


def additive_context(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    v: Tensor,
    mask: Mask | Tensor | None,
    grid: Grid,
    *,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> Tensor | None:
    """The context ``[.., Q, E]``, without ever holding all scores; None if plain is as good.

    Args:
        query: projected queries ``[.., Q, D]``.
        key: projected keys ``[.., K, D]``.
        value: ``[.., K, E]``.
        v: ``[D]``.
        mask: which query may attend to which key; no numbers to add.
        grid: what the mask is asked about.
        scale: of the scores, before the softmax.
        dropout: share of the weights set to zero.
    """
    if _plainly(query, key):
        return None
    entries = _Entries(query, key, value)
    a, b, values = (entries.flat(part) for part in (query, key, value))
    # Drawn here, so that the same seed gives the same dropout, and backward can repeat it.
    seed = (
        torch.randint(1 << 62, (), dtype=torch.int64)
        if dropout
        else torch.zeros((), dtype=torch.int64)
    )
    given = a, b, values, v.to(a.dtype)
    if torch.compiler.is_compiling():
        allowed = _dense_entries(mask, grid, entries.leading)
        context: Tensor = torch.ops.heedful.additive_context(*given, allowed, scale, dropout, seed)
    else:
        rows_of = _rows_of(mask, grid, entries.leading)
        context = _Context.apply(*given, rows_of, scale, dropout, seed)  # type: ignore[no-untyped-call]
    return context.view(*entries.leading, *context.shape[1:]).to(value.dtype)


def _plainly(query: Tensor, key: Tensor) -> bool:
    """Whether the formula as it is written is quicker, or as quick, and holds little."""
    if _chosen is not None:
        return _chosen == "plain"
    if torch.compiler.is_compiling():
        return False  # Not to compile anew for every length.
    queries, keys = query.shape[-2], key.shape[-2]
    # With few queries (a decoder's step) an exponential a row is no less than one a pair.
    if queries * keys < 4 * (queries + keys):
        return True
    entries = max(query.shape[:-2].numel(), key.shape[:-2].numel())
    return entries * queries * keys * key.shape[-1] < _SMALL


class _Entries:
    """Leading dimensions made one, and single precision at least."""

    def __init__(self, *parts: Tensor) -> None:
        shapes = (part.shape[:-2] for part in parts)
        self.leading: torch.Size = torch.broadcast_shapes(*shapes)

    def flat(self, part: Tensor) -> Tensor:
        part = part if part.dtype == torch.float64 else part.float()
        whole = part.expand(*self.leading, *part.shape[-2:])
        return whole.reshape(self.leading.numel(), *part.shape[-2:]).contiguous()


def _tiles(a: Tensor, b: Tensor, v: Tensor) -> Tiles:
    single, kernel = a.dtype == torch.float32, _chosen
    if kernel in (None, "compiled") and single and a.device.type == "cpu":
        library = compiled.library()
        if library is not None:
            return compiled.CompiledTiles(library, a, b, v)
    if kernel in (None, "triton") and single and a.device.type == "cuda":
        from heedful.attention.kernels import triton_tiles

        if triton_tiles.available():
            return triton_tiles.TritonTiles(a, b, v)
    if kernel in ("compiled", "triton"):
        raise RuntimeError(f"the {kernel} kernel cannot run here ({a.dtype} on {a.device})")
    return PlainTiles(a, b, v)


RowsOf = Callable[[slice], Tensor | None]


def _dense_entries(mask: Mask | Tensor | None, grid: Grid, leading: torch.Size) -> Tensor | None:
    """Booleans ``[n or 1, q or 1, K or 1]`` of the grid."""
    allowed = split_mask(mask, grid)[0]
    if allowed is None:
        return None
    if allowed.dim() > 2 and allowed.shape[:-2].numel() != 1:
        allowed = allowed.expand(*leading, *allowed.shape[-2:])
    if allowed.dim() < 2:
        allowed = allowed.view(1, -1)
    return allowed.reshape(allowed.shape[:-2].numel(), *allowed.shape[-2:])


def _rows_of(mask: Mask | Tensor | None, grid: Grid, leading: torch.Size) -> RowsOf:
    """Rows → the same of these rows, made when asked for and never whole."""

    def rows_of(rows: slice) -> Tensor | None:
        return None if mask is None else _dense_entries(mask, grid.part(rows), leading)

    return rows_of


def _given_rows(allowed: Tensor | None) -> RowsOf:
    """The same from what :func:`_dense_entries` gave for the whole."""

    def rows_of(rows: slice) -> Tensor | None:
        if allowed is None:
            return None
        return allowed if allowed.shape[1] == 1 else allowed[:, rows]

    return rows_of


class _Block:
    """One block of rows: what it may attend to, its weights, and its dropout."""

    def __init__(self, rows: slice, allowed: Tensor | None, keys: int) -> None:
        self.rows, self.allowed = rows, allowed
        self.keys = slice(0, keys)
        if allowed is not None and allowed.device.type == "cpu" and allowed.shape[-1] == keys:
            # Keys that no row of the block may attend to are not even scored.
            self.keys = span(allowed, keys)
            self.allowed = allowed[..., self.keys]

    def weights(self, scores: Tensor) -> Tensor:
        """The softmax of ``scores``, which is used up; as in ``masked_softmax``."""
        if self.allowed is None:
            return torch.softmax(scores, -1)
        scores.masked_fill_(~self.allowed, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, -1).masked_fill_(~self.allowed, 0.0)

    def keep(self, like: Tensor, dropout: float, seed: Tensor) -> Tensor | None:
        """What weights are multiplied by: 0 or 1/(1 − dropout); the same at every call."""
        if not dropout:
            return None
        generator = torch.Generator(like.device).manual_seed(int(seed) + self.rows.start)
        drawn = torch.rand(like.shape, generator=generator, device=like.device)
        return (drawn >= dropout).to(like.dtype) / (1.0 - dropout)


def _blocks(a: Tensor, keys: int, rows_of: RowsOf) -> Iterator[_Block]:
    n, queries = a.shape[:2]
    step = max(1, _BLOCK // max(1, n * keys))
    for start in range(0, queries, step):
        rows = slice(start, min(start + step, queries))
        block = _Block(rows, rows_of(rows), keys)
        if block.keys.stop > block.keys.start:
            yield block


def _forward(
    a: Tensor,
    b: Tensor,
    value: Tensor,
    v: Tensor,
    rows_of: RowsOf,
    scale: float,
    dropout: float,
    seed: Tensor,
) -> Tensor:
    tiles = _tiles(a, b, v)
    context = value.new_zeros(a.shape[0], a.shape[1], value.shape[2])
    for block in _blocks(a, b.shape[1], rows_of):
        weights = block.weights(scale * tiles.scores(block.rows, block.keys))
        keep = block.keep(weights, dropout, seed)
        if keep is not None:
            weights = weights * keep
        context[:, block.rows] = weights @ value[:, block.keys]
    return context


def _backward(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    value: Tensor,
    v: Tensor,
    rows_of: RowsOf,
    scale: float,
    dropout: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tiles = _tiles(a, b, v)
    tiles.start_gradients()
    grad_value = torch.zeros_like(value)
    for block in _blocks(a, b.shape[1], rows_of):
        weights = block.weights(scale * tiles.scores(block.rows, block.keys))
        keep = block.keep(weights, dropout, seed)
        above = grad[:, block.rows]
        used = weights if keep is None else weights * keep
        grad_value[:, block.keys] += used.transpose(1, 2) @ above
        g = above @ value[:, block.keys].transpose(1, 2)  # ∂L/∂(weights after dropout)
        if keep is not None:
            g *= keep
        # The softmax's own backward; masked weights are zero, and so are their gradients.
        g -= (g * weights).sum(-1, keepdim=True)
        g *= weights
        tiles.add_gradients(block.rows, block.keys, g.mul_(scale))
    return (*tiles.collect(), grad_value)


class _Context(torch.autograd.Function):
    """:func:`_forward` with a mask that stays an object, so that it is never whole."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        a, b, value, v, rows_of, scale, dropout, seed = given
        ctx.save_for_backward(a, b, value, v, seed)
        ctx.settings = rows_of, scale, dropout
        return _forward(a, b, value, v, rows_of, scale, dropout, seed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, b, value, v, seed = ctx.saved_tensors
        rows_of, scale, dropout = ctx.settings
        da, db, dv, grad_value = _backward(grads[0], a, b, value, v, rows_of, scale, dropout, seed)
        return da, db, grad_value, dv, None, None, None, None
