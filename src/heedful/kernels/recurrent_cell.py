"""The element-wise part of a recurrent cell in C (``cells.c``), with its gradients.

:func:`cell_step` is the plain form.
Shapes: N rows, H hidden, G gates (1 for tanh, 3 for GRU, 4 for LSTM).
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import torch
from torch import Tensor

from heedful.basics.addresses import readable, single_on_cpu
from heedful.kernels import source_attention
from heedful.kernels.cached_attention import can_step
from heedful.kernels.compiling import SOURCES, compiled_library, over_rows

T = TypeVar("T")

Cell = Literal["rnn", "gru", "lstm"]

LayerState = tuple[Tensor, ...]
"""One layer's state: ``(h,)``, or ``(h, c)`` for the LSTM, each ``[N, H]``."""

_KINDS = {"rnn": 0, "gru": 1, "lstm": 2}
_SMALL = 1 << 15  # numbers below which a second thread is not worth its call


class _CellInC(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("kind", "units", "stride")]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled cells; None if they are not available, which prints a notice once."""
    return compiled_library(SOURCES / "recurrent_cell.c", "recurrent models run")


def cell_step(cell: str, gates: Tensor, recurrent: Tensor, before: LayerState) -> LayerState:
    """One step of one layer; in search :func:`next_state` does the same.

    Args:
        cell: rnn, gru or lstm.
        gates: the input's share of the gates, ``W_ih x + b_ih``, ``[N, G·H]``.
        recurrent: the state's share, ``W_hh h + b_hh``, ``[N, G·H]``.
        before: the layer's state before the step.
    """
    if cell == "rnn":
        return (torch.tanh(gates + recurrent),)
    if cell == "gru":
        update_reset, candidate = gates.tensor_split([2 * gates.shape[-1] // 3], dim=-1)
        from_state, candidate_state = recurrent.tensor_split([2 * gates.shape[-1] // 3], dim=-1)
        r, z = torch.sigmoid(update_reset + from_state).chunk(2, dim=-1)
        n = torch.tanh(candidate + r * candidate_state)
        return (n + z * (before[0] - n),)
    i, f, g, o = (gates + recurrent).chunk(4, dim=-1)
    c = torch.sigmoid(f) * before[1] + torch.sigmoid(i) * torch.tanh(g)
    return (torch.sigmoid(o) * torch.tanh(c), c)


def next_state(
    kind: str, gates: Tensor, recurrent: Tensor, before: tuple[Tensor, ...]
) -> tuple[Tensor, ...] | None:
    """The state after a step of search; None if only the plain form supports it.

    Shapes as in :func:`cell_step`.
    """
    if not can_step(gates) or library() is None:
        return None
    if any(part.dtype != torch.float32 for part in before) or not readable(recurrent, *before):
        return None
    now = [part.contiguous() for part in before]
    after = tuple(torch.empty_like(part) for part in now)
    cell = CompiledCell(kind, now[0].shape[1])
    cell.step(gates.contiguous(), None, recurrent.contiguous(), now, after)
    return after


def loops_in_c(tensors: Sequence[Tensor | None]) -> bool:
    """Whether C runs loops of cells over these tensors: in float32 on the CPU."""
    there = [part for part in tensors if part is not None]
    single = all(part.dtype == torch.float32 for part in there if part.is_floating_point())
    return (
        single
        and readable(*there)
        and library() is not None
        and source_attention.library() is not None
    )


def loops_pay(*tensors: Tensor | None) -> bool:
    """Whether an operator that is a loop of cells is faster than the loop, step by step."""
    given = [part for part in tensors if part is not None]
    return single_on_cpu(*given) and library() is not None


def loop_or(loop: Callable[[], T], otherwise: Callable[[], T], *tensors: Tensor | None) -> T:
    """What ``loop`` returns if it is the faster of two ways of computing the same.

    Args:
        loop: computes with operators that are loops of cells.
        otherwise: computes step by step, or by PyTorch's network.
        tensors: what the operators read.
    """
    return loop() if loops_pay(*tensors) else otherwise()


class CompiledCell:
    """A cell's step from the shares of input and state, float32 on the CPU.

    A state is ``[N, H]`` for each of its parts, h and, of the LSTM, c; all contiguous.

    Args:
        kind: rnn, gru or lstm.
        units: H.

    Raises:
        RuntimeError: there is no compiled form.
    """

    def __init__(self, kind: str, units: int) -> None:
        found = library()
        if found is None:
            raise RuntimeError("no compiled kernel is available for this cell")
        self._library, self._kind, self._units = found, _KINDS[kind], units

    def step(
        self,
        gates: Tensor,
        opened: Tensor | None,
        recurrent: Tensor,
        before: Sequence[Tensor],
        after: Sequence[Tensor],
    ) -> None:
        """The state after a step, written to ``after``.

        Args:
            gates: the input's share ``[N, G·H]``, contiguous.
            opened: where the gates themselves are kept, for :meth:`step_back`; may be ``gates``.
            recurrent: the state's share ``[N, G·H]``; rows may lie apart.
            before: the state before.
            after: the state after.
        """
        given = [gates, opened, recurrent, *_two(before), *_two(after)]
        self._run(self._library.heedful_cell, given, recurrent)

    def step_back(
        self,
        gates: Tensor,
        recurrent: Tensor,
        before: Sequence[Tensor],
        after: Sequence[Tensor],
        by_output: Tensor,
        by_state: Sequence[Tensor],
        by_gates: Tensor,
        by_recurrent: Tensor,
    ) -> None:
        """The gradients of a step.

        Args:
            gates: what :meth:`step` has kept.
            recurrent: as it was.
            before: the state before.
            after: the state after.
            by_output: that of h from outside ``[N, H]``, contiguous.
            by_state: those of the state after from later steps; become those of the state before,
                but for what came through ``recurrent``.
            by_gates: where that of the input's share is written, contiguous.
            by_recurrent: where that of the state's share is written; lies as ``recurrent`` does.

        Raises:
            ValueError: it does not.
        """
        if by_recurrent.stride() != recurrent.stride():
            raise ValueError("a gradient must have the strides of its tensor")
        given = [gates, recurrent, *_two(before), _two(after)[1]]
        given += [by_output, *_two(by_state), by_gates, by_recurrent]
        self._run(self._library.heedful_cell_back, given, recurrent)

    def _run(
        self, function: Callable[..., int], given: list[Tensor | None], recurrent: Tensor
    ) -> None:
        told = _CellInC(self._kind, self._units, recurrent.stride(0))
        addresses = [ctypes.c_void_p(None if x is None else x.data_ptr()) for x in given]
        threads = 1 if recurrent.shape[0] * self._units < _SMALL else torch.get_num_threads()
        over_rows(function, [*addresses, ctypes.byref(told)], len(recurrent), threads)


def _two(state: Sequence[Tensor]) -> list[Tensor | None]:
    """h, and c or None."""
    return [*state] if len(state) == 2 else [*state, None]
