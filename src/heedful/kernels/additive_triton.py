"""The additive score's reductions in Triton, for NVIDIA GPUs in float32.

A Triton program computes one [queries, keys] tile of scores, or of the gradients of one side, and
loops over the units in strips. For each strip of a tile, the device checks whether the exponentials
are representable. See :mod:`~.additive_tiles` for the formula.
"""

import torch
from torch import Tensor

from heedful.kernels.additive_tiles import LIMIT, Tiles

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

_QUERIES, _KEYS, _UNITS = 16, 32, 16  # sides of a tile, units of a strip
_LIMIT = LIMIT[torch.float32] / 2


def available() -> bool:
    """Whether Triton is installed."""
    return triton is not None


if triton is not None:

    @triton.jit
    def _tile(a_at, b_at, rows, keys, units, q, k, d, limit: tl.constexpr):
        """r ``[q, k, d]`` of a strip of a tile."""
        there_a = (rows < q)[:, None] & (units < d)[None, :]
        there_b = (keys < k)[:, None] & (units < d)[None, :]
        a = tl.load(a_at + rows[:, None] * d + units[None, :], mask=there_a, other=0.0)
        b = tl.load(b_at + keys[:, None] * d + units[None, :], mask=there_b, other=0.0)
        if tl.maximum(tl.max(tl.abs(a)), tl.max(tl.abs(b))) < limit:
            x = tl.exp(2.0 * a)[:, None, :] * tl.exp(2.0 * b)[None, :, :]
            r = 1.0 / (1.0 + x)
        else:
            # Also for NaN, which gives NaN.
            r = tl.sigmoid(-2.0 * (a[:, None, :] + b[None, :, :]))
        return r

    @triton.jit
    def _weighted(
        a,
        b,
        v,
        out,
        q,
        k,
        d,
        limit: tl.constexpr,
        queries: tl.constexpr,
        keys_: tl.constexpr,
        units_: tl.constexpr,
    ):
        n = tl.program_id(2).to(tl.int64)
        rows = tl.program_id(1) * queries + tl.arange(0, queries)
        keys = tl.program_id(0) * keys_ + tl.arange(0, keys_)
        total = tl.zeros((queries, keys_), dtype=tl.float32)
        for start in range(0, d, units_):
            units = start + tl.arange(0, units_)
            r = _tile(a + n * q * d, b + n * k * d, rows, keys, units, q, k, d, limit)
            weight = tl.load(v + units, mask=units < d, other=0.0)
            total += tl.sum((r - 0.5) * weight[None, None, :], axis=2)
        there = (rows < q)[:, None] & (keys < k)[None, :]
        tl.store(out + n * q * k + rows[:, None] * k + keys[None, :], total, mask=there)

    @triton.jit
    def _gradients(
        a,
        b,
        g,
        da,
        dr,
        q,
        k,
        d,
        g_row,
        g_key,
        limit: tl.constexpr,
        with_units: tl.constexpr,
        queries: tl.constexpr,
        keys_: tl.constexpr,
        units_: tl.constexpr,
    ):
        """Σ_k g r(1 − r) for a strip of units and some queries, over all keys.

        With queries and keys exchanged, the same function computes the gradients of the keys.
        """
        n = tl.program_id(2).to(tl.int64)
        rows = tl.program_id(1) * queries + tl.arange(0, queries)
        units = tl.program_id(0) * units_ + tl.arange(0, units_)
        total = tl.zeros((queries, units_), dtype=tl.float32)
        weighted = tl.zeros((queries, units_), dtype=tl.float32)
        for start in range(0, k, keys_):
            keys = start + tl.arange(0, keys_)
            r = _tile(a + n * q * d, b + n * k * d, rows, keys, units, q, k, d, limit)
            there = (rows < q)[:, None] & (keys < k)[None, :]
            at = n * q * k + rows[:, None] * g_row + keys[None, :] * g_key
            grad = tl.load(g + at, mask=there, other=0.0)[:, :, None]
            total += tl.sum(grad * r * (1.0 - r), axis=1)
            weighted += tl.sum(grad * (r - 0.5), axis=1)
        there = (rows < q)[:, None] & (units < d)[None, :]
        at = n * q * d + rows[:, None] * d + units[None, :]
        tl.store(da + at, total, mask=there)
        if with_units:
            tl.store(dr + at, weighted, mask=there)


class TritonTiles(Tiles):
    """Tiles in Triton. Sums have a fixed order, so results are deterministic."""

    def weighted(self, rows: slice, keys: slice) -> Tensor:
        a, b = self.a[:, rows].contiguous(), self.b[:, keys].contiguous()
        (n, q, d), k = a.shape, b.shape[1]
        out = a.new_empty(n, q, k)
        grid = (triton.cdiv(k, _KEYS), triton.cdiv(q, _QUERIES), n)
        _weighted[grid](a, b, self.v, out, q, k, d, _LIMIT, _QUERIES, _KEYS, _UNITS)
        return out

    def add_gradients(self, rows: slice, keys: slice, g: Tensor) -> None:
        a, b, g = self.a[:, rows].contiguous(), self.b[:, keys].contiguous(), g.contiguous()
        (n, q, d), k = a.shape, b.shape[1]
        da, dr, db = torch.empty_like(a), torch.empty_like(a), torch.empty_like(b)
        sides = (_QUERIES, _KEYS, _UNITS)
        strips = triton.cdiv(d, _UNITS)
        grid = (strips, triton.cdiv(q, _QUERIES), n)
        _gradients[grid](a, b, g, da, dr, q, k, d, k, 1, _LIMIT, True, *sides)
        grid = (strips, triton.cdiv(k, _QUERIES), n)
        _gradients[grid](b, a, g, db, db, k, q, d, 1, k, _LIMIT, False, *sides)
        self.da[:, rows] += da
        self.db[:, keys] += db
        self.dr += dr.sum((0, 1))
