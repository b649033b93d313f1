"""Softmax attention of short sequences in C (``short.c``), forward and backward.

PyTorch's CPU kernel is made for long sequences; with a dozen positions most of its time is
overhead. Here the data of a head fit into the L1 cache, keys and values are read in the layout of
the projections' outputs, and contexts and gradients are written in the layout of the next one.
Shapes: B entries, H heads of queries, G of keys and values, Q queries, K keys, D, E widths.
"""

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor

from heedful.basics.addresses import operable
from heedful.basics.operation_counting import count
from heedful.kernels.compiling import SOURCES, compiled_library, over_rows

_FEWEST = 4
"""Queries from which it is worth to make them lie side by side."""
_LONGEST = 128
"""Queries and keys up to which a head's numbers stay in the nearest cache."""
_SMALL = 1 << 18
"""Products of a query's, a key's and a value's numbers below which one thread does it."""
_LEAST = 1 << 19
"""Products B·H·Q·K·D below which PyTorch's kernel is faster: the call from Python takes longer than
the work. Measured with ``benchmarks/short_attention.py``."""


class _Place(ctypes.Structure):
    _fields_ = [
        ("first", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("entry", "head", "position")),
    ]


_SIZES = ("entries", "heads", "groups", "queries", "keys", "width", "value_width")
_PLACES = ("query", "key", "value", "context", "query_gradient", "key_gradient", "value_gradient")
_STRIDES = ("entry", "head", "query", "key")


class _Attention(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in _SIZES),
        ("scale", ctypes.c_double),
        *((name, _Place) for name in _PLACES),
        ("weights", ctypes.c_void_p),
        ("allowed", ctypes.c_void_p),
        *((f"allowed_{name}", ctypes.c_int64) for name in _STRIDES),
        ("causal", ctypes.c_int64),
    ]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None if they are not available, which prints a notice once."""
    found = compiled_library(SOURCES / "short_attention.c", "attention of short sequences runs")
    if found is not None:
        found.heedful_attention_room.restype = ctypes.c_int64
    return found


def can_do(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether C does it: enough short sequences, float32 of four dimensions on the CPU, and a mask
    of booleans."""
    parts = query, key, value
    if any(part.dim() != 4 or part.dtype != torch.float32 for part in parts):
        return False
    # Whoever asks PyTorch for its plain formula alone gets it.
    if not operable(*parts) or not torch.backends.cuda.flash_sdp_enabled():
        return False
    if not _FEWEST <= query.shape[-2] <= _LONGEST or key.shape[-2] > _LONGEST:
        return False
    if not all(part.numel() and len(part) == len(query) for part in parts):
        return False
    if query.numel() * key.shape[-2] < _LEAST:
        return False
    groups = key.shape[1]
    if groups != value.shape[1] or query.shape[1] % groups:
        return False
    if mask is not None and (mask.dtype != torch.bool or mask.dim() > 4 or not operable(mask)):
        return False
    return library() is not None


@functools.cache
def _columns() -> int:
    """Of how many queries the room for weights is a multiple."""
    c = library()
    return 1 if c is None else int(c.heedful_attention_room(ctypes.c_int64(1)))


def room(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Where the context ``[B, H, Q, E]`` and the weights ``[B, H, K, Q or more]`` go."""
    batch, heads, queries, _ = query.shape
    columns = _columns()
    weights = query.new_empty(batch, heads, key.shape[2], -(-queries // columns) * columns)
    return _by_position(query, heads, queries, value.shape[3]), weights


def gradient_room(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the gradients of the three go."""
    by_query, by_key, by_value = (
        _by_position(query, *part.shape[1:]) for part in (query, key, value)
    )
    return by_query, by_key, by_value


def attention_in_c(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The context, and the weights ``[B, H, K, Q]`` with some more numbers in each row."""
    c = library()
    assert c is not None
    context, weights = room(query, key, value)
    given = _Given(query, key, value, mask, causal, scale, weights)
    given.run(c.heedful_attention, {"context": context})
    count(given.operations)
    return context, weights


def gradients_in_c(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value."""
    c = library()
    assert c is not None
    found = gradient_room(query, key, value)
    names = ("query_gradient", "key_gradient", "value_gradient")
    # Weights that are zero need no mask.
    given = _Given(query, key, value, None, False, scale, weights)
    places = {"context": _rows(grad), **dict(zip(names, found, strict=True))}
    given.run(c.heedful_attention_gradients, places)
    count(given.operations_back)
    return found


class _Given:
    """What both directions are given, as C takes it."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        causal: bool,
        scale: float,
        weights: Tensor,
    ) -> None:
        batch, heads, queries, width = query.shape
        groups, keys = key.shape[1:3]
        # Held, so that what C reads lives as long as this.
        self.kept = [_rows(part) for part in (query, key, value)]
        self.shape = _Attention(batch, heads, groups, queries, keys, width, value.shape[3], scale)
        for name, part in zip(_PLACES, self.kept, strict=False):
            setattr(self.shape, name, _place(part))
        self.shape.weights, self.shape.causal = weights.data_ptr(), causal
        if mask is not None:
            seen = mask.expand(batch, heads, queries, keys)
            self.shape.allowed = seen.data_ptr()
            for name, stride in zip(_STRIDES, seen.stride(), strict=True):
                setattr(self.shape, f"allowed_{name}", stride)
        self.pairs = batch * groups
        pairs, value_width = 2 * batch * heads * queries * keys, value.shape[3]
        self.operations = pairs * (width + value_width)
        # As PyTorch counts its kernel's, which makes the scores anew.
        self.operations_back = pairs * (3 * width + 2 * value_width)
        self.threads = 1
        if batch * heads * queries * keys * width > _SMALL:
            self.threads = torch.get_num_threads()

    def run(self, function: Any, places: dict[str, Tensor]) -> None:
        """Call C for all pairs of entry and group."""
        for name, part in places.items():
            setattr(self.shape, name, _place(part))
        over_rows(function, [ctypes.byref(self.shape)], self.pairs, self.threads)


def _rows(part: Tensor) -> Tensor:
    """The same, with the numbers of a row side by side."""
    return part if part.stride(-1) == 1 else part.contiguous()


def _place(part: Tensor) -> _Place:
    return _Place(part.data_ptr(), *part.stride()[:3])


def _by_position(like: Tensor, heads: int, positions: int, width: int) -> Tensor:
    """Room ``[B, H, L, D]`` in the order ``[B, L, H, D]``, in which projections read and write."""
    return like.new_empty(like.shape[0], positions, heads, width).transpose(1, 2)
