"""Softmax attention of short sequences in C (``short_attention.c``), forward and backward.

PyTorch's CPU kernel is optimised for long sequences. For a dozen positions, it spends most of its
time on overhead. Here, the data of a head fit in the L1 cache, keys and values are read in the
layout of the projections' outputs, and contexts and gradients are written in the layout of the next
product.
Shapes: B entries, H query heads, G key and value heads, Q queries, K keys, D and E widths.
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
"""The minimum number of queries, over which the kernel vectorises."""
_LONGEST = 128
"""The maximum number of queries and keys: the data of a head must fit in the L1 cache."""
_SMALL = 1 << 18
"""The number of multiplications below which one thread is used."""
_LEAST = 1 << 19
"""The number of multiplications B·H·Q·K·D below which PyTorch's kernel is faster: the call from
Python takes longer than the computation. Measured with ``benchmarks/short_attention.py``."""


class _StridedInC(ctypes.Structure):
    _fields_ = [
        ("first", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("entry", "head", "position")),
    ]


_SIZES = ("entries", "heads", "groups", "queries", "keys", "width", "value_width")
_PLACES = ("query", "key", "value", "context", "query_gradient", "key_gradient", "value_gradient")
_STRIDES = ("entry", "head", "query", "key")


class _AttentionInC(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in _SIZES),
        ("scale", ctypes.c_double),
        *((name, _StridedInC) for name in _PLACES),
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
        found.heedful_attention_padded_queries.restype = ctypes.c_int64
    return found


def is_supported(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether C supports the tensors: short sequences with enough work, float32 with four
    dimensions on the CPU, and a boolean mask."""
    parts = query, key, value
    if any(part.dim() != 4 or part.dtype != torch.float32 for part in parts):
        return False
    # If only PyTorch's math backend is enabled, it must be used.
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
def _padding() -> int:
    """The number of queries is padded to a multiple of this."""
    c = library()
    return 1 if c is None else int(c.heedful_attention_padded_queries(ctypes.c_int64(1)))


def empty_outputs(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Uninitialised context ``[B, H, Q, E]`` and weights ``[B, H, K, R]``, R ≥ Q."""
    batch, heads, queries, _ = query.shape
    columns = _padding()
    weights = query.new_empty(batch, heads, key.shape[2], -(-queries // columns) * columns)
    return _by_position(query, heads, queries, value.shape[3]), weights


def empty_gradients(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Uninitialised gradients of the three."""
    by_query, by_key, by_value = (
        _by_position(query, *part.shape[1:]) for part in (query, key, value)
    )
    return by_query, by_key, by_value


def attention_in_c(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The context, and the weights ``[B, H, K, R]``, R ≥ Q: the rest of a row is padding."""
    c = library()
    assert c is not None
    context, weights = empty_outputs(query, key, value)
    given = _Arguments(query, key, value, mask, causal, scale, weights)
    given.run(c.heedful_attention, {"context": context})
    count(given.operations)
    return context, weights


def gradients_in_c(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value."""
    c = library()
    assert c is not None
    found = empty_gradients(query, key, value)
    names = ("query_gradient", "key_gradient", "value_gradient")
    # No mask: masked weights are zero.
    given = _Arguments(query, key, value, None, False, scale, weights)
    places = {"context": _contiguous_rows(grad), **dict(zip(names, found, strict=True))}
    given.run(c.heedful_attention_backward, places)
    count(given.operations_back)
    return found


class _Arguments:
    """The arguments of the forward and the backward pass for C."""

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
        # keeps tensors alive that C reads
        self.kept = [_contiguous_rows(part) for part in (query, key, value)]
        self.shape = _AttentionInC(
            batch, heads, groups, queries, keys, width, value.shape[3], scale
        )
        for name, part in zip(_PLACES, self.kept, strict=False):
            setattr(self.shape, name, _strided(part))
        self.shape.weights, self.shape.causal = weights.data_ptr(), causal
        if mask is not None:
            seen = mask.expand(batch, heads, queries, keys)
            self.shape.allowed = seen.data_ptr()
            for name, stride in zip(_STRIDES, seen.stride(), strict=True):
                setattr(self.shape, f"allowed_{name}", stride)
        self.pairs = batch * groups
        pairs, value_width = 2 * batch * heads * queries * keys, value.shape[3]
        self.operations = pairs * (width + value_width)
        # PyTorch counts its own kernel likewise, which recomputes the scores.
        self.operations_back = pairs * (3 * width + 2 * value_width)
        self.threads = 1
        if batch * heads * queries * keys * width > _SMALL:
            self.threads = torch.get_num_threads()

    def run(self, function: Any, places: dict[str, Tensor]) -> None:
        """Call C for all (entry, group) pairs."""
        for name, part in places.items():
            setattr(self.shape, name, _strided(part))
        over_rows(function, [ctypes.byref(self.shape)], self.pairs, self.threads)


def _contiguous_rows(part: Tensor) -> Tensor:
    """The same values, with a contiguous last dimension."""
    return part if part.stride(-1) == 1 else part.contiguous()


def _strided(part: Tensor) -> _StridedInC:
    return _StridedInC(part.data_ptr(), *part.stride()[:3])


def _by_position(like: Tensor, heads: int, positions: int, width: int) -> Tensor:
    """Uninitialised ``[B, H, L, D]`` in the memory layout ``[B, L, H, D]`` of the projections."""
    return like.new_empty(like.shape[0], positions, heads, width).transpose(1, 2)
