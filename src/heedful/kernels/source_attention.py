"""Attention of one query per row over the keys and values of its source, with gradients, in C.

It computes the attention of a recurrent decoder's step (``source_attention.c``). The plain
reference has a dozen operations and an intermediate tensor ``[N, S, D]``.
Shapes: N rows, A sources, S positions, D width of queries and keys, E of values.
"""

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from heedful.basics.addresses import readable, single_on_cpu
from heedful.basics.operation_counting import count
from heedful.kernels.additive_selection import compiled_wanted
from heedful.kernels.compiling import SOURCES, compiled_library, over_rows

_SMALL = 1 << 16  # (row, position, unit) triples; below, one thread is faster


class _SourcesInC(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("keys", "values", "v", "allowed", "rows")),
        *((name, ctypes.c_int64) for name in ("positions", "key_width", "value_width")),
        ("scale", ctypes.c_double),
    ]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernel; None if it is not available, which prints a notice once."""
    return compiled_library(SOURCES / "source_attention.c", "recurrent models run")


def plain_source_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor,
    vector: Tensor | None,
    scale: float,
) -> Tensor:
    """The plain reference of :meth:`Sources.read` if row n reads source n: ``[N, E]``."""
    if vector is None:
        scores = (key @ query.unsqueeze(2)).squeeze(2)
    else:
        scores = torch.tanh(query.unsqueeze(1) + key) @ vector
    shut = ~allowed.squeeze(1)
    scores = (scale * scores).masked_fill(shut, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1).masked_fill(shut, 0.0)
    return (weights.unsqueeze(1) @ value).squeeze(1)


def attend_to_sources(
    make_query: Callable[[], Tensor],
    key: Tensor,
    value: Tensor,
    allowed: Tensor,
    rows: Tensor,
    vector: Tensor | None,
    scale: float,
) -> Tensor | None:
    """The contexts ``[N, E]`` of one query per row; None if the kernel is not used.

    The kernel is used for float32 on the CPU without gradients.

    Args:
        make_query: returns the projected queries ``[N, D]``.
        key: see :class:`Sources`, as for the other arguments.
        value: see there.
        allowed: see there.
        rows: see there.
        vector: see there.
        scale: see there.
    """
    read = [part for part in (key, value, vector) if part is not None]
    if torch.is_grad_enabled() or not has_kernel(*read) or not readable(*read):
        return None
    query = make_query().contiguous()
    if query.dtype != torch.float32 or not readable(query):
        return None
    contexts = query.new_empty(len(query), value.shape[2])
    Sources(key, value, allowed, rows, vector, scale).read(query, contexts)
    return contexts


def has_kernel(*tensors: Tensor) -> bool:
    """Whether the kernel supports these tensors: float32 on the CPU, without autocast, if no other
    kernel was selected and a compiler is available."""
    return single_on_cpu(*tensors) and compiled_wanted() and library() is not None


class Sources:
    """Softmax attention with one query per row; scores ``vᵀ tanh(q + k)``, or ``qᵀ k`` without v.

    All tensors are on the CPU; floating-point tensors are float32.

    Args:
        key: projected keys ``[A, S, D]``.
        value: ``[A, S, E]``.
        allowed: booleans ``[A, 1, S]``: the allowed positions. A row without one gets zeros.
        rows: integers ``[N]``: the source of each row.
        vector: v ``[D]``, or None.
        scale: factor of the scores.

    Raises:
        RuntimeError: the compiled kernel is not available.
    """

    def __init__(
        self,
        key: Tensor,
        value: Tensor,
        allowed: Tensor,
        rows: Tensor,
        vector: Tensor | None,
        scale: float,
    ) -> None:
        found = library()
        if found is None:
            raise RuntimeError("no compiled kernel is available for attention over sources")
        self._library = found
        self.key, self.value, self.rows = key.contiguous(), value.contiguous(), rows.contiguous()
        self._kept = [self.key, self.value, allowed.contiguous(), self.rows]
        if vector is not None:
            self._kept.insert(2, vector.contiguous())
        read = [part.data_ptr() for part in self._kept]
        if vector is None:
            read.insert(2, 0)
        _, positions, width = key.shape
        self._in_c = _SourcesInC(*read, positions, width, value.shape[2], scale)
        work = len(rows) * positions * width
        # Products with v or queries, and with values. In the backward pass, the former is two.
        pairs, of_scores = 2 * len(rows) * positions, width * (1 if vector is not None else 2)
        self._operations = pairs * (width + value.shape[2])
        self._operations_back = pairs * (of_scores + value.shape[2])
        self._threads = 1 if work < _SMALL else torch.get_num_threads()

    def read(self, query: Tensor, to: Tensor, weights: Tensor | None = None) -> None:
        """Compute the contexts of ``query [N, D]`` and write them to ``to [N, E]``.

        Args:
            query: projected queries; rows can have a stride.
            to: contiguous.
            weights: receives the weights ``[N, S]``; contiguous.
        """
        given = [
            *_strided(query),
            ctypes.c_void_p(to.data_ptr()),
            ctypes.c_void_p(None if weights is None else weights.data_ptr()),
            ctypes.byref(self._in_c),
        ]
        over_rows(self._library.heedful_source_attention, given, len(query), self._threads)
        count(self._operations)

    def read_backward(
        self,
        query: Tensor,
        weights: Tensor,
        grad_context: Tensor,
        grad_query: Tensor,
        grad_key: Tensor,
        grad_vector: Tensor,
    ) -> None:
        """Gradients of :meth:`read`, except for the values, which only need the weights.

        Each row must have its own source, because sources are divided among threads.

        Args:
            query: as passed to :meth:`read`.
            weights: the weights that :meth:`read` saved.
            grad_context: gradient of the contexts ``[N, E]``, contiguous.
            grad_query: receives the gradient of the queries ``[N, D]``; has the strides of
                ``query``.
            grad_key: the gradient of the keys ``[A, S, D]`` is added to it.
            grad_vector: the gradient of v for each row ``[N, D]`` is added to it.

        Raises:
            ValueError: the strides of ``by_query`` and ``query`` differ.
        """
        if grad_query.stride() != query.stride():
            raise ValueError("a gradient must have the strides of its tensor")
        given = [
            *_strided(query),
            *(ctypes.c_void_p(x.data_ptr()) for x in (weights, grad_context)),
            *(ctypes.c_void_p(x.data_ptr()) for x in (grad_query, grad_key, grad_vector)),
            ctypes.byref(self._in_c),
        ]
        over_rows(self._library.heedful_source_attention_backward, given, len(query), self._threads)
        count(self._operations_back)


def _strided(rows: Tensor) -> tuple[ctypes.c_void_p, ctypes.c_int64]:
    return ctypes.c_void_p(rows.data_ptr()), ctypes.c_int64(rows.stride(0))
