"""The additive score's two reductions, tile by tile, in PyTorch: the reference for fast kernels.

    s[n, q, k] = Σ_d v_d tanh(a_qd + b_kd),    and for g = ∂L/∂s its gradients in a, b and v.

With r = 1 / (1 + e^{2a}·e^{2b}) the tangent is −2(r − ½) and its derivative 4r(1 − r): the
transcendental is computed once a row, not once a (query, key, unit). Where an exponential is not
representable (|2a| or |2b| above :data:`LIMIT`) a tile uses r = sigmoid(−2(a + b)), the plain
formula. Both r(1 − r) and the plain sigmoid are finite wherever a and b are.

Shapes: n entries, Q queries, K keys, D units.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

LIMIT = {torch.float32: 87.0, torch.float64: 700.0}
"""Largest |2a| whose exponential, and its inverse, the type can hold."""

_TILE = 1 << 19  # numbers of a [q, k, D] tile, so that it stays in the cache
_TILE_ON_GPU = 1 << 25


def plain_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """``vᵀ tanh(query + key)``, the plain formula; needs a tensor ``[.., Q, K, D]``."""
    both = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))  # [.., Q, K, D]
    return both @ v.to(both.dtype)


def differentiable(
    result: Tensor, inputs: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated again: those of ``result`` in its ``inputs``."""
    wanted = [part for part in inputs if part.requires_grad]
    found = iter(torch.autograd.grad(result, wanted, grad, create_graph=True))
    return tuple(next(found) if part.requires_grad else None for part in inputs)


class Tiles(ABC):
    """The scores of queries ``a [n, Q, D]`` and keys ``b [n, K, D]`` for the vector ``v [D]``.

    Gradients add up in :attr:`da`, :attr:`db` and :attr:`dr`; :meth:`collect` makes them whole.
    """

    def __init__(self, a: Tensor, b: Tensor, v: Tensor) -> None:
        self.a, self.b, self.v = a, b, v

    def scores(self, rows: slice, keys: slice) -> Tensor:
        """Scores ``[n, rows, keys]``."""
        return self.weighted(rows, keys).mul_(-2.0)

    @abstractmethod
    def weighted(self, rows: slice, keys: slice) -> Tensor:
        """``Σ_d v_d (r − ½)``, ``[n, rows, keys]``."""

    def start_gradients(self) -> None:
        """Set the sums to zero."""
        self.da, self.db = torch.zeros_like(self.a), torch.zeros_like(self.b)
        self.dr = torch.zeros_like(self.v)

    @abstractmethod
    def add_gradients(self, rows: slice, keys: slice, g: Tensor) -> None:
        """Add what ``g = ∂L/∂s [n, rows, keys]`` says.

        ``Σ_k g r(1 − r)`` to ``da``, ``Σ_q g r(1 − r)`` to ``db``, ``Σ g (r − ½)`` to ``dr``.
        """

    def collect(self) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients in a, b and v."""
        return 4.0 * self.v * self.da, 4.0 * self.v * self.db, -2.0 * self.dr


class PlainTiles(Tiles):
    """Tiles in PyTorch: on every device, in float32 and float64."""

    def __init__(self, a: Tensor, b: Tensor, v: Tensor) -> None:
        super().__init__(a, b, v)
        self.rooms: list[Tensor] = []
        self.on_cpu = a.device.type == "cpu"
        if self.on_cpu:
            self.ea, self.eb = torch.exp(2.0 * a), torch.exp(2.0 * b)
            limit = LIMIT[a.dtype] / 2
            self.fits_a = fits(a, limit)
            self.fits_b = fits(b, limit)

    def _step(self, n: int) -> int:
        """Side of a square tile."""
        most = _TILE if self.on_cpu else _TILE_ON_GPU
        return max(1, int((most / max(1, n * self.v.numel())) ** 0.5))

    def _tiles(self, rows: slice, keys: slice) -> list[tuple[slice, slice]]:
        step = self._step(self.a.shape[0])
        return [
            (slice(q, min(q + step, rows.stop)), slice(k, min(k + step, keys.stop)))
            for q in range(rows.start, rows.stop, step)
            for k in range(keys.start, keys.stop, step)
        ]

    def _room(self, which: int, n: int, q: slice, k: slice) -> Tensor:
        """Room ``[n, q, k, D]`` that tiles take turns in: new memory for each costs more."""
        shape = (n, q.stop - q.start, k.stop - k.start, self.v.numel())
        size = math.prod(shape)
        if len(self.rooms) <= which or self.rooms[which].numel() < size:
            self.rooms[which:] = [self.a.new_empty(size)]
        return self.rooms[which][:size].view(shape)

    def _reciprocal(self, q: slice, k: slice) -> Tensor:
        """r ``[n, q, k, D]`` of a tile."""
        room = self._room(0, self.a.shape[0], q, k)
        # A graphics processor is not asked whether the exponentials fit: the answer would be
        # waited for, and its own exponentials are quick.
        if self.on_cpu and bool(self.fits_a[:, q].all() & self.fits_b[:, k].all()):
            torch.mul(self.ea[:, q, None], self.eb[:, None, k], out=room)
            return room.add_(1.0).reciprocal_()
        torch.add(self.a[:, q, None], self.b[:, None, k], out=room)
        return room.mul_(-2.0).sigmoid_()

    def weighted(self, rows: slice, keys: slice) -> Tensor:
        shape = (self.a.shape[0], rows.stop - rows.start, keys.stop - keys.start)
        out = self.a.new_empty(shape)
        for q, k in self._tiles(rows, keys):
            here = (slice(None), _from(q, rows), _from(k, keys))
            out[here] = self._reciprocal(q, k).sub_(0.5) @ self.v
        return out

    def add_gradients(self, rows: slice, keys: slice, g: Tensor) -> None:
        for q, k in self._tiles(rows, keys):
            part = g[:, _from(q, rows), _from(k, keys)]
            r = self._reciprocal(q, k)
            t = torch.sub(1.0, r, out=self._room(1, self.a.shape[0], q, k))
            t.mul_(r).mul_(part.unsqueeze(-1))
            self.da[:, q] += t.sum(2)
            self.db[:, k] += t.sum(1)
            self.dr += part.reshape(-1) @ r.sub_(0.5).view(-1, self.v.numel())


def fits(rows: Tensor, limit: float) -> Tensor:
    """Whether each row ``[n, L]`` of ``[n, L, D]`` keeps within the limit; NaN does not."""
    return (rows.abs() < limit).all(-1)


def _from(part: slice, whole: slice) -> slice:
    return slice(part.start - whole.start, part.stop - whole.start)
