"""The additive score's two reductions, tile by tile, in PyTorch: the reference for fast kernels.

    s[n, q, k] = Σ_d v_d tanh(a_qd + b_kd),    and for g = ∂L/∂s its gradients in a, b and v.

With r = 1 / (1 + e^{2a}·e^{2b}), tanh is −2(r − ½) and its derivative is 4r(1 − r). The
exponentials are therefore computed once for each row instead of once for each (query, key, unit).
If an exponential is not representable (|2a| or |2b| above :data:`LIMIT`), a tile uses r =
sigmoid(−2(a + b)). For finite a and b, both forms are finite.

Shapes: n entries, Q queries, K keys, D units.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

LIMIT = {torch.float32: 87.0, torch.float64: 700.0}
"""Largest |2a| for which the exponential and its inverse are representable."""

_TILE = 1 << 19  # elements of a [q, k, D] tile, which must fit in the cache
_TILE_ON_GPU = 1 << 25


def plain_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """``vᵀ tanh(query + key)``: the plain reference, which stores a tensor ``[.., Q, K, D]``."""
    both = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))  # [.., Q, K, D]
    return both @ v.to(both.dtype)


def differentiable(
    result: Tensor, inputs: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of ``inputs``, in a form that can be differentiated again."""
    wanted = [part for part in inputs if part.requires_grad]
    found = iter(torch.autograd.grad(result, wanted, grad, create_graph=True))
    return tuple(next(found) if part.requires_grad else None for part in inputs)


class Tiles(ABC):
    """The scores of queries ``a [n, Q, D]`` and keys ``b [n, K, D]`` for the vector ``v [D]``.

    :meth:`add_gradients` accumulates in :attr:`da`, :attr:`db` and :attr:`dr`; :meth:`collect`
    returns the final gradients.
    """

    def __init__(self, a: Tensor, b: Tensor, v: Tensor) -> None:
        self.a, self.b, self.v = a, b, v

    def scores(self, rows: slice, keys: slice, scale: float = 1.0) -> Tensor:
        """Scores ``[n, rows, keys]``, times ``scale``."""
        return self.weighted(rows, keys).mul_(-2.0 * scale)

    @abstractmethod
    def weighted(self, rows: slice, keys: slice) -> Tensor:
        """``Σ_d v_d (r − ½)``, ``[n, rows, keys]``."""

    def start_gradients(self) -> None:
        """Set the sums to zero."""
        self.da, self.db = torch.zeros_like(self.a), torch.zeros_like(self.b)
        self.dr = torch.zeros_like(self.v)

    @abstractmethod
    def add_gradients(self, rows: slice, keys: slice, g: Tensor) -> None:
        """Accumulate the gradients for ``g = ∂L/∂s [n, rows, keys]``.

        Adds ``Σ_k g r(1 − r)`` to ``da``, ``Σ_q g r(1 − r)`` to ``db``, ``Σ g (r − ½)`` to ``dr``.
        """

    def collect(self) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of a, b and v."""
        return 4.0 * self.v * self.da, 4.0 * self.v * self.db, -2.0 * self.dr


class PlainTiles(Tiles):
    """Tiles in PyTorch, for all devices, in float32 and float64."""

    def __init__(self, a: Tensor, b: Tensor, v: Tensor) -> None:
        super().__init__(a, b, v)
        self.buffers: list[Tensor] = []
        self.on_cpu = a.device.type == "cpu"
        if self.on_cpu:
            self.ea, self.eb = torch.exp(2.0 * a), torch.exp(2.0 * b)
            limit = LIMIT[a.dtype] / 2
            self.fits_a = fits(a, limit)
            self.fits_b = fits(b, limit)

    def _step(self, n: int) -> int:
        """The side of a square tile."""
        size_limit = _TILE if self.on_cpu else _TILE_ON_GPU
        return max(1, int((size_limit / max(1, n * self.v.numel())) ** 0.5))

    def _tiles(self, rows: slice, keys: slice) -> list[tuple[slice, slice]]:
        step = self._step(self.a.shape[0])
        return [
            (slice(q, min(q + step, rows.stop)), slice(k, min(k + step, keys.stop)))
            for q in range(rows.start, rows.stop, step)
            for k in range(keys.start, keys.stop, step)
        ]

    def _buffer(self, which: int, n: int, q: slice, k: slice) -> Tensor:
        """A buffer ``[n, q, k, D]`` that all tiles reuse, which is faster than allocating."""
        shape = (n, q.stop - q.start, k.stop - k.start, self.v.numel())
        size = math.prod(shape)
        if len(self.buffers) <= which or self.buffers[which].numel() < size:
            self.buffers[which:] = [self.a.new_empty(size)]
        return self.buffers[which][:size].view(shape)

    def _reciprocal(self, q: slice, k: slice) -> Tensor:
        """r ``[n, q, k, D]`` of a tile."""
        buffer = self._buffer(0, self.a.shape[0], q, k)
        # On a GPU, checking the exponentials would need a synchronisation, and exponentials are
        # fast there.
        if self.on_cpu and bool(self.fits_a[:, q].all() & self.fits_b[:, k].all()):
            torch.mul(self.ea[:, q, None], self.eb[:, None, k], out=buffer)
            return buffer.add_(1.0).reciprocal_()
        torch.add(self.a[:, q, None], self.b[:, None, k], out=buffer)
        return buffer.mul_(-2.0).sigmoid_()

    def weighted(self, rows: slice, keys: slice) -> Tensor:
        shape = (self.a.shape[0], rows.stop - rows.start, keys.stop - keys.start)
        out = self.a.new_empty(shape)
        for q, k in self._tiles(rows, keys):
            here = (slice(None), _relative(q, rows), _relative(k, keys))
            out[here] = self._reciprocal(q, k).sub_(0.5) @ self.v
        return out

    def add_gradients(self, rows: slice, keys: slice, g: Tensor) -> None:
        for q, k in self._tiles(rows, keys):
            part = g[:, _relative(q, rows), _relative(k, keys)]
            r = self._reciprocal(q, k)
            t = torch.sub(1.0, r, out=self._buffer(1, self.a.shape[0], q, k))
            t.mul_(r).mul_(part.unsqueeze(-1))
            self.da[:, q] += t.sum(2)
            self.db[:, k] += t.sum(1)
            self.dr += part.reshape(-1) @ r.sub_(0.5).view(-1, self.v.numel())


def fits(rows: Tensor, limit: float) -> Tensor:
    """Whether all values of each row are below the limit, ``[n, L]``; false for NaN."""
    return (rows.abs() < limit).all(-1)


def _relative(part: slice, whole: slice) -> slice:
    return slice(part.start - whole.start, part.stop - whole.start)
