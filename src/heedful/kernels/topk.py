"""The largest values of long rows, faster than ``torch.topk``, which copies every element.

Shapes: N rows, V values in a row.
"""

import ctypes
import functools
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.basics.addresses import readable
from heedful.kernels.compiling import SOURCES, compiled_library, over_rows

_BLOCK = 128
_SMALL = 1 << 18  # values; below, one thread is faster


class Total(NamedTuple):
    """``log Σ e^logit`` of each row as a sum of two terms, of which the first is exact."""

    largest: Tensor
    """The largest logit ``[N]``."""
    rest: Tensor
    """``log Σ e^(logit − largest)``, ``[N]``: from 0 to log V."""

    @classmethod
    def of(cls, logits: Tensor) -> "Total":
        """The total of ``logits [N, V]``."""
        return cls(logits.amax(1), -logits.log_softmax(1).amax(1))

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """The log-probabilities of some logits ``[N, c]`` of each row."""
        return logits - self.largest.unsqueeze(1) - self.rest.unsqueeze(1)


class Best(NamedTuple):
    """The most probable tokens of each row."""

    logits: Tensor
    """``[N, k]``, largest first."""
    tokens: Tensor
    """``[N, k]``."""
    total: Total
    """The total of the row."""


class _Rows(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("width", "stride", "first", "k")]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled form of :func:`best`; None if it is not available."""
    return compiled_library(SOURCES / "topk.c", "search runs")


def best(logits: Tensor, k: int, first: int) -> Best:
    """The ``k`` most probable tokens of each row, from token ``first``.

    For float32 on the CPU it runs in C if a compiler is available, which reads the logits once.

    Args:
        logits: ``[N, V]``, unnormalised log-probabilities.
        k: the number of tokens.
        first: earlier tokens are not returned, but count in the total probability.

    Raises:
        ValueError: a row has fewer than ``k`` such tokens.
    """
    offered = logits.shape[1] - first
    if k > offered:
        raise ValueError(f"k = {k} is more than the number of values, {offered}")
    single = logits.dtype == torch.float32 and readable(logits)
    if single and k > 0 and logits.stride(1) == 1 and not logits.requires_grad:
        found = library()
        if found is not None:
            return _best_in_c(found, logits, k, first)
    return plain_best(logits, k, first)


def plain_best(logits: Tensor, k: int, first: int) -> Best:
    """The plain reference of :func:`best`."""
    values, columns = top_k(logits[:, first:], k)
    return Best(values, columns + first, Total.of(logits))


def _best_in_c(found: ctypes.CDLL, logits: Tensor, k: int, first: int) -> Best:
    rows, width = logits.shape
    values, largest, rest = logits.new_empty(rows, k), *logits.new_empty(2, rows)
    columns = torch.empty(rows, k, dtype=torch.long)
    shape = _Rows(width, logits.stride(0), first, k)
    given = [ctypes.c_void_p(part.data_ptr()) for part in (logits, values, columns, largest, rest)]
    threads = 1 if logits.numel() < _SMALL else torch.get_num_threads()
    over_rows(found.heedful_topk, [*given, ctypes.byref(shape)], rows, threads)
    return Best(values, columns, Total(largest, rest))


def top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest of each row ``[N, V]``, largest first, and their columns: both ``[N, k]``.

    The result is exact: the k largest values lie in the k blocks with the largest maxima, so that
    only these blocks are sorted. Among equal values, any can be returned.

    Raises:
        ValueError: a row has fewer than ``k`` values.
    """
    rows, width = values.shape
    if k > width:
        raise ValueError(f"k = {k} is more than the number of values, {width}")
    blocks = width // _BLOCK
    if blocks < 4 * k:
        return values.topk(k, dim=1)
    whole = blocks * _BLOCK
    maxima = values[:, :whole].reshape(rows, blocks, _BLOCK).amax(2)  # [N, blocks]
    chosen = maxima.topk(k, dim=1).indices  # [N, k]
    offsets = torch.arange(_BLOCK, device=values.device)
    columns = (chosen.unsqueeze(2) * _BLOCK + offsets).flatten(1)  # [N, k * _BLOCK]
    rest = torch.arange(whole, width, device=values.device).expand(rows, -1)
    columns = torch.cat([columns, rest], dim=1)
    best, index = values.gather(1, columns).topk(k, dim=1)
    return best, columns.gather(1, index)
