"""Dropout with cheap random numbers on the CPU.

Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting".
PyTorch draws 64 random bits per element on the CPU; sixteen are enough and four times cheaper. In
float32, C code (``dropout.c``) applies them with identical results, if a compiler is available.
"""

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.addresses import forward_mode, is_traced, readable
from heedful.kernels.compiling import SOURCES, compiled_library, over_rows
from heedful.kernels.operators import Operator, one_by_one

_STEPS = 1 << 16
_SMALL = 1 << 20  # numbers below which a second thread is not worth its call


class _Given(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("hidden", "bits", "result")),
        ("first", ctypes.c_int64),
        ("scale", ctypes.c_double),
    ]


class _Own(threading.local):
    """A thread's own generator; None for PyTorch's generator, which all threads share."""

    generator: torch.Generator | None = None


_own = _Own()


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Dropout on the CPU draws from ``generator`` while the block runs, in this thread."""
    before, _own.generator = _own.generator, generator
    try:
        yield
    finally:
        _own.generator = before


@functools.cache
def library() -> ctypes.CDLL | None:
    """Dropout in C; None if it is not available, which prints a notice once."""
    return compiled_library(SOURCES / "dropout.c", "dropout runs")


def dropout(hidden: Tensor, share: float) -> Tensor:
    """Set each number to zero with probability ``share``, scale the others by ``1 / (1 - share)``.

    On the CPU ``share`` is rounded to 1/65,536, and the scale with it, so that the mean stays.

    Args:
        hidden: of any shape.
        share: in [0, 1).
    """
    if hidden.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(hidden, share)
    dropped = round(share * _STEPS)
    count = hidden.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64)
    words.random_(-(1 << 63), None, generator=_own.generator)
    first, scale = dropped - _STEPS // 2, _STEPS / (_STEPS - dropped)
    if forward_mode(hidden) or is_traced():
        return plain_dropout(hidden, words, first, scale)
    result: Tensor = _operator(hidden, words, first, scale)
    return result


def plain_dropout(hidden: Tensor, words: Tensor, first: int, scale: float) -> Tensor:
    """``hidden`` times ``scale`` where its bits, as a number, are at least ``first``, else zero.

    Args:
        hidden: of any shape.
        words: 64 bits for each four of its numbers, int64.
        first: from −32,768 to 32,767.
        scale: of what is kept.
    """
    return hidden * _factors(hidden.shape, words, first, scale).to(hidden.dtype)


def _factors(shape: torch.Size, words: Tensor, first: int, scale: float) -> Tensor:
    bits = words.view(torch.int16)[: shape.numel()].view(shape)
    return (bits >= first) * scale


def _in_c(hidden: Tensor, words: Tensor) -> bool:
    single = hidden.dtype == torch.float32 and hidden.numel() > 0
    return single and readable(hidden, words) and library() is not None


def _dropout_in_c(hidden: Tensor, words: Tensor, first: int, scale: float) -> Tensor:
    """:func:`plain_dropout` in one pass."""
    found = library()
    assert found is not None
    hidden = hidden.contiguous()
    result = torch.empty_like(hidden)
    given = _Given(hidden.data_ptr(), words.data_ptr(), result.data_ptr(), first, scale)
    threads = 1 if hidden.numel() < _SMALL else torch.get_num_threads()
    over_rows(found.heedful_dropout, [ctypes.byref(given)], hidden.numel(), threads)
    return result


def _dropped(hidden: Tensor, words: Tensor, first: int, scale: float) -> Tensor:
    run = _dropout_in_c if _in_c(hidden, words) else plain_dropout
    result = run(hidden, words.contiguous(), first, scale)
    # An operator's result is none of its inputs, and lies as the fake one does.
    return result.contiguous()


_operator = Operator("dropout", _dropped)
"""``torch.ops.heedful.dropout``: :func:`plain_dropout`, of any tensors."""


@_operator.operator.register_fake
def _(hidden: Tensor, words: Tensor, first: int, scale: float) -> Tensor:
    return torch.empty_like(hidden, memory_format=torch.contiguous_format)


@_operator.operator.register_vmap
def _(info: Any, places: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
    hidden, *others = given
    if places[0] is None or places[1] is not None:
        return one_by_one(_operator.operator)(info, places, *given)
    hidden = hidden.movedim(places[0], 0)
    return hidden * _factors(hidden.shape[1:], *others).to(hidden.dtype), 0


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, words, *ctx.settings = inputs
    ctx.save_for_backward(words)


def _through(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    return _operator(grad, *ctx.saved_tensors, *ctx.settings), None, None, None


_operator.register_autograd(_through, _keep)
