"""The element-wise part of a recurrent cell in C (``recurrent_cell.c``), with its gradients.

:func:`cell_step` is the plain reference.
Shapes: N rows, H hidden size, G gates (1 for tanh, 3 for GRU, 4 for LSTM).
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

KINDS = {"rnn": 0, "gru": 1, "lstm": 2}
_SMALL = 1 << 15  # elements; below, one thread is faster


class CellInC(ctypes.Structure):
    """``struct cell``."""

    _fields_ = [(name, ctypes.c_int64) for name in ("kind", "units", "stride")]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled cells; None if they are not available, which prints a notice once."""
    found = compiled_library(SOURCES / "recurrent_cell.c", "recurrent models run")
    if found is not None:
        found.heedful_panel_columns.restype = ctypes.c_int64
    return found


def cell_step(cell: str, gates: Tensor, recurrent: Tensor, before: LayerState) -> LayerState:
    """One step of one layer. :func:`next_state` computes the same during search.

    Args:
        cell: rnn, gru or lstm.
        gates: the input's contribution to the gates, ``W_ih x + b_ih``, ``[N, G·H]``.
        recurrent: the previous state's contribution, ``W_hh h + b_hh``, ``[N, G·H]``.
        before: the layer's previous state.
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
    """The state after a step of search; None if the kernel does not support the tensors.

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
    """Whether C supports loops of cells over these tensors: float32 on the CPU."""
    there = [part for part in tensors if part is not None]
    single = all(part.dtype == torch.float32 for part in there if part.is_floating_point())
    return (
        single
        and readable(*there)
        and library() is not None
        and source_attention.library() is not None
    )


def loops_are_faster(*tensors: Tensor | None) -> bool:
    """Whether an operator that contains the whole loop of cells is faster than a Python loop."""
    given = [part for part in tensors if part is not None]
    return single_on_cpu(*given) and library() is not None


def choose_loop(loop: Callable[[], T], otherwise: Callable[[], T], *tensors: Tensor | None) -> T:
    """The result of ``loop`` if it is expected to be faster, else that of ``otherwise``.

    Args:
        loop: computes with operators that contain the whole loop.
        otherwise: computes the same step by step, or with PyTorch's network.
        tensors: the inputs of the operators.
    """
    return loop() if loops_are_faster(*tensors) else otherwise()


class CompiledCell:
    """A step of a cell, from the contributions of input and state; float32 on the CPU.

    A state is h and, for the LSTM, c: each ``[N, H]`` and contiguous.

    Args:
        kind: rnn, gru or lstm.
        units: H.

    Raises:
        RuntimeError: the compiled kernel is not available.
    """

    def __init__(self, kind: str, units: int) -> None:
        found = library()
        if found is None:
            raise RuntimeError("no compiled kernel is available for this cell")
        self._library, self._kind, self._units = found, KINDS[kind], units

    def step(
        self,
        gates: Tensor,
        saved_gates: Tensor | None,
        recurrent: Tensor,
        before: Sequence[Tensor],
        after: Sequence[Tensor],
    ) -> None:
        """Compute the next state and write it to ``after``.

        Args:
            gates: the input's contribution ``[N, G·H]``, contiguous.
            saved_gates: receives the gate values for :meth:`step_backward`; may be ``gates``.
            recurrent: the state's contribution ``[N, G·H]``; rows can have a stride.
            before: the previous state.
            after: the new state.
        """
        given = [gates, saved_gates, recurrent, *_h_and_c(before), *_h_and_c(after)]
        self._run(self._library.heedful_cell, given, recurrent)

    def step_backward(
        self,
        gates: Tensor,
        recurrent: Tensor,
        before: Sequence[Tensor],
        after: Sequence[Tensor],
        grad_output: Tensor,
        grad_state: Sequence[Tensor],
        grad_gates: Tensor,
        grad_recurrent: Tensor,
    ) -> None:
        """The gradients of a step.

        Args:
            gates: the gate values that :meth:`step` saved.
            recurrent: as passed to :meth:`step`.
            before: the previous state.
            after: the new state.
            grad_output: the gradient of h from the output ``[N, H]``, contiguous.
            grad_state: on entry the gradients of the new state from later steps; on return those of
                the previous state, without the part through ``recurrent``.
            grad_gates: receives the gradient of the input's contribution; contiguous.
            grad_recurrent: receives the gradient of the state's contribution; has the strides of
                ``recurrent``.

        Raises:
            ValueError: the strides differ.
        """
        if grad_recurrent.stride() != recurrent.stride():
            raise ValueError("a gradient must have the strides of its tensor")
        given = [gates, recurrent, *_h_and_c(before), _h_and_c(after)[1]]
        given += [grad_output, *_h_and_c(grad_state), grad_gates, grad_recurrent]
        self._run(self._library.heedful_cell_backward, given, recurrent)

    def _run(
        self, function: Callable[..., int], given: list[Tensor | None], recurrent: Tensor
    ) -> None:
        shape = CellInC(self._kind, self._units, recurrent.stride(0))
        addresses = [ctypes.c_void_p(None if x is None else x.data_ptr()) for x in given]
        threads = 1 if recurrent.shape[0] * self._units < _SMALL else torch.get_num_threads()
        over_rows(function, [*addresses, ctypes.byref(shape)], len(recurrent), threads)


def _h_and_c(state: Sequence[Tensor]) -> list[Tensor | None]:
    """h, and c (None without one)."""
    return [*state] if len(state) == 2 else [*state, None]
