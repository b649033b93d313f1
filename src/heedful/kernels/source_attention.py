"""Attention of one query per row over the keys and values of its source, with gradients, in C.

It computes the attention of a recurrent decoder's step (``reading.c``); the plain form has a dozen
operations and an intermediate tensor ``[N, S, D]``.
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

_SMALL = 1 << 16  # (row, position, unit) triples below which a second thread is not worth its call


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
    """The plain form of :meth:`Sources.read`, where row n reads source n: ``[N, E]``."""
    if vector is None:
        scores = (key @ query.unsqueeze(2)).squeeze(2)
    else:
        scores = torch.tanh(query.unsqueeze(1) + key) @ vector
    shut = ~allowed.squeeze(1)
    scores = (scale * scores).masked_fill(shut, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1).masked_fill(shut, 0.0)
    return (weights.unsqueeze(1) @ value).squeeze(1)


def attend_to_sources(
    asked: Callable[[], Tensor],
    key: Tensor,
    value: Tensor,
    allowed: Tensor,
    rows: Tensor,
    vector: Tensor | None,
    scale: float,
) -> Tensor | None:
    """The contexts ``[N, E]`` of one query per row; None if the plain form is as good.

    It is with gradients, and for other tensors than float32 on the CPU.

    Args:
        asked: gives the projected queries ``[N, D]``.
        key: as :class:`Sources` takes it, like the rest.
        value: see there.
        allowed: see there.
        rows: see there.
        vector: see there.
        scale: see there.
    """
    read = [part for part in (key, value, vector) if part is not None]
    if torch.is_grad_enabled() or not has_kernel(*read) or not readable(*read):
        return None
    query = asked().contiguous()
    if query.dtype != torch.float32 or not readable(query):
        return None
    contexts = query.new_empty(len(query), value.shape[2])
    Sources(key, value, allowed, rows, vector, scale).read(query, contexts)
    return contexts


def has_kernel(*tensors: Tensor) -> bool:
    """Whether the kernel supports these tensors: float32 on the CPU, without autocast, if no other
    kernel was chosen and a compiler is available."""
    return single_on_cpu(*tensors) and compiled_wanted() and library() is not None


class Sources:
    """Softmax attention of one query a row: ``vᵀ tanh(q + k)``, or ``qᵀ k`` where there is no v.

    All tensors are on the CPU, numbers in float32.

    Args:
        key: projected keys ``[A, S, D]``.
        value: ``[A, S, E]``.
        allowed: booleans ``[A, 1, S]``: what may be read. A row that may read nothing gets zeros.
        rows: integers ``[N]``: which source each row reads.
        vector: v ``[D]``, or None.
        scale: of the scores.

    Raises:
        RuntimeError: there is no compiled form.
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
        # Products with v or with queries, and with values; backwards, that with queries is two.
        pairs, of_scores = 2 * len(rows) * positions, width * (1 if vector is not None else 2)
        self._operations = pairs * (width + value.shape[2])
        self._operations_back = pairs * (of_scores + value.shape[2])
        self._threads = 1 if work < _SMALL else torch.get_num_threads()

    def read(self, query: Tensor, to: Tensor, weights: Tensor | None = None) -> None:
        """The contexts of ``query [N, D]``, written to ``to [N, E]``.

        Args:
            query: projected; rows may lie apart.
            to: contiguous.
            weights: where to keep the weights ``[N, S]``, contiguous.
        """
        given = [
            *_strided(query),
            ctypes.c_void_p(to.data_ptr()),
            ctypes.c_void_p(None if weights is None else weights.data_ptr()),
            ctypes.byref(self._in_c),
        ]
        over_rows(self._library.heedful_read_sources, given, len(query), self._threads)
        count(self._operations)

    def read_back(
        self,
        query: Tensor,
        weights: Tensor,
        by_context: Tensor,
        by_query: Tensor,
        by_key: Tensor,
        by_vector: Tensor,
    ) -> None:
        """Gradients of what :meth:`read` has read, but for the values, whose are weights alone.

        Each row must have a source of its own: sources are shared out among threads.

        Args:
            query: as it was.
            weights: those that were kept.
            by_context: gradient of the contexts ``[N, E]``, contiguous.
            by_query: where that of the queries is written ``[N, D]``; lies as the queries do.
            by_key: what that of the keys is added to ``[A, S, D]``.
            by_vector: what each row's share in that of v is added to ``[N, D]``.

        Raises:
            ValueError: ``by_query`` does not lie as ``query`` does.
        """
        if by_query.stride() != query.stride():
            raise ValueError("a gradient must have the strides of its tensor")
        given = [
            *_strided(query),
            *(ctypes.c_void_p(x.data_ptr()) for x in (weights, by_context)),
            *(ctypes.c_void_p(x.data_ptr()) for x in (by_query, by_key, by_vector)),
            ctypes.byref(self._in_c),
        ]
        over_rows(self._library.heedful_read_sources_back, given, len(query), self._threads)
        count(self._operations_back)


def _strided(rows: Tensor) -> tuple[ctypes.c_void_p, ctypes.c_int64]:
    return ctypes.c_void_p(rows.data_ptr()), ctypes.c_int64(rows.stride(0))
