"""The additive score's reductions in C (``additive.c``), if a compiler is available.

Without a compiler or a writable cache, and for other types than float32,
:class:`~.additive_tiles.PlainTiles` is used.
"""

import ctypes
import functools
import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.kernels.additive_tiles import LIMIT, Tiles
from heedful.kernels.compiling import SOURCES, compiled_library, in_parallel

_PADDING = 16  # the number of units is padded to a multiple of the largest number of lanes
_LEAST = 1e-12  # a smaller share of the largest |v_d| is not distinguished from this one


class _Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("n", "q", "k", "d", "first_key", "last_key")]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled reductions; None if they are not available, which prints a notice once."""
    return compiled_library(SOURCES / "additive.c", "additive attention runs")


class CompiledTiles(Tiles):
    """Tiles in C. Each thread computes a range of the keys."""

    def __init__(
        self, library: ctypes.CDLL, a: Tensor, b: Tensor, v: Tensor, threads: int | None = None
    ) -> None:
        super().__init__(a, b, v)
        self.library, self.threads = library, threads or torch.get_num_threads()
        self.units = v.numel()
        self.a2, self.b2 = _padded(2.0 * a), _padded(2.0 * b)
        self.padded_v = _padded(v)
        self.largest = v.abs().max()
        self.relative_v = self.padded_v / self.largest
        size = self.relative_v.abs().clamp(min=_LEAST)
        self.inverse = torch.where(self.relative_v < 0, -1.0, 1.0) / size
        self.ea, self.eb = self.a2.exp(), self.b2.exp()
        self.fits_a, self.fits_b = _fits(self.a2), _fits(self.b2)
        self.reach_b = self.b2.amax(-1).clamp(min=0.0)

    def _prepare(self, rows: slice) -> list[Tensor]:
        """Prepare the inputs of both reductions."""
        queries = (part[:, rows].contiguous() for part in (self.a2, self.ea, self.fits_a))
        return [*queries, self.b2, self.eb, self.fits_b]

    def _shares(self, rows: slice, keys: slice) -> list[_Shape]:
        n, _, d = self.a2.shape
        queries, count = rows.stop - rows.start, keys.stop - keys.start
        threads = max(1, min(self.threads, count // 8))
        edges = [keys.start + count * i // threads for i in range(threads + 1)]
        return [
            _Shape(n, queries, self.b.shape[1], d, first, last)
            for first, last in itertools.pairwise(edges)
        ]

    def weighted(self, rows: slice, keys: slice) -> Tensor:
        n, k = self.b.shape[:2]
        out = self.a.new_empty(n, rows.stop - rows.start, k)
        inverse_ea = self.inverse * self.ea[:, rows]
        reach_a = torch.maximum(_largest(inverse_ea), _largest(self.inverse)).log()
        shared = [inverse_ea, reach_a, self.reach_b]
        shared += [self.inverse, self.relative_v, self.largest, self.padded_v]
        given = [*self._prepare(rows), *shared, out]
        shares = self._shares(rows, keys)
        self._run(self.library.heedful_additive_scores, [given] * len(shares), shares)
        return out[:, :, keys]

    def start_gradients(self) -> None:
        super().start_gradients()
        self.padded_db = torch.zeros_like(self.b2)

    def add_gradients(self, rows: slice, keys: slice, g: Tensor) -> None:
        n, k = self.b.shape[:2]
        whole = g
        if g.shape[-1] != k or not g.is_contiguous():
            whole = g.new_empty(n, rows.stop - rows.start, k)
            whole[:, :, keys] = g
        shares = self._shares(rows, keys)
        # Threads have disjoint keys, but each thread needs its own sums over queries and units.
        da = self.a2.new_zeros(len(shares), n, rows.stop - rows.start, self.a2.shape[-1])
        dr = self.a2.new_zeros(len(shares), self.a2.shape[-1])
        given = [*self._prepare(rows), whole]
        self._run(
            self.library.heedful_additive_backward,
            [[*given, da[i], self.padded_db, dr[i]] for i in range(len(shares))],
            shares,
        )
        self.da[:, rows] += da.sum(0)[..., : self.units]
        self.dr += dr.sum(0)[: self.units]

    def collect(self) -> tuple[Tensor, Tensor, Tensor]:
        self.db = self.padded_db[..., : self.units]
        return super().collect()

    @staticmethod
    def _run(function: Callable[..., int], given: list[list[Tensor]], shares: list[_Shape]) -> None:
        calls = [
            (*(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors), ctypes.byref(share))
            for tensors, share in zip(given, shares, strict=True)
        ]
        in_parallel(function, calls)


def _padded(numbers: Tensor) -> Tensor:
    missing = -numbers.shape[-1] % _PADDING
    return (F.pad(numbers, (0, missing)) if missing else numbers).contiguous()


def _largest(rows: Tensor) -> Tensor:
    """The largest |x| of each row."""
    lowest, highest = rows.aminmax(dim=-1)
    return torch.maximum(-lowest, highest)


def _fits(rows: Tensor) -> Tensor:
    """:func:`~.additive_tiles.fits` in one pass."""
    return _largest(rows) < LIMIT[torch.float32]
