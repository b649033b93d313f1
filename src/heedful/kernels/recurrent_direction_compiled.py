"""The loop of one direction of a recurrent layer in C (``recurrent_cell.c``).

Sequences are independent of each other, so that each thread computes all steps of its own, and
results are identical for any number of threads.

Shapes: as in :mod:`heedful.kernels.recurrent_direction`.
"""

import ctypes
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.operation_counting import count
from heedful.kernels.compiling import over_rows
from heedful.kernels.recurrent_cell import KINDS, CellInC, library

_SMALL = 1 << 22  # multiplications; below, one thread is faster


class _DirectionInC(ctypes.Structure):
    _fields_ = [
        ("cell", CellInC),
        *((name, ctypes.c_int64) for name in ("steps", "backwards")),
        *((name, ctypes.c_void_p) for name in ("counts", "places", "panels", "bias", "zeros")),
    ]


class CompiledDirection:
    """All steps of one direction, forward or backward; float32 on the CPU.

    Args:
        kind: rnn, gru or lstm.
        sizes: the number of sequences at each step.
        backwards: whether the last token is read first.
        matrix: what the state of a step ``[·, H]`` is multiplied by from the right, or, in the
            backward pass, the gradient ``[·, G·H]``.
        bias: ``[G·H]``, added to the product; None in the backward pass.

    Raises:
        RuntimeError: the compiled kernel is not available.
    """

    def __init__(
        self,
        kind: str,
        sizes: Sequence[int],
        backwards: bool,
        matrix: Tensor,
        bias: Tensor | None,
    ) -> None:
        found = library()
        if found is None:
            raise RuntimeError("no compiled kernel is available for this direction")
        self._library, self.sequences = found, sizes[0]
        depth, width = matrix.shape
        self._operations = 2 * sum(sizes) * depth * width
        columns = int(found.heedful_panel_columns())
        padding = -width % columns
        self.padded_width = width + padding
        self._counts = torch.tensor(sizes, dtype=torch.int64)
        self._places = self._counts.cumsum(0) - self._counts
        panels = F.pad(matrix, (0, padding)).unflatten(1, (-1, columns)).transpose(0, 1)
        self._panels = panels.contiguous()
        self._bias = (
            matrix.new_zeros(width + padding) if bias is None else F.pad(bias, (0, padding))
        )
        self._zeros = matrix.new_zeros(sizes[0], min(depth, width))
        cell = CellInC(KINDS[kind], min(depth, width), max(depth, width))
        given = (self._counts, self._places, self._panels, self._bias, self._zeros)
        self._shape = _DirectionInC(cell, len(sizes), backwards, *_addresses(given))

    def run(
        self, known: Tensor, gates: Tensor, recurrent: Tensor, tops: Tensor, inner: Tensor | None
    ) -> None:
        """Compute all states.

        Args:
            known: the contribution of the input ``[M, G·H]``.
            gates: receives the values of the gates.
            recurrent: receives the contribution of the state; may be ``gates`` except for the GRU.
            tops: receives h ``[M, H]``.
            inner: receives c of the LSTM.
        """
        self._call(self._library.heedful_direction, known, gates, recurrent, tops, inner)

    def run_backward(
        self,
        saved: tuple[Tensor, Tensor, Tensor, Tensor | None],
        grad_tops: Tensor,
        grad_last: Sequence[Tensor],
        grad_gates: Tensor,
        grad_recurrent: Tensor,
    ) -> None:
        """Compute the gradients of the contributions of input and state.

        Args:
            saved: ``gates``, ``recurrent``, ``tops`` and ``inner`` as after :meth:`run`.
            grad_tops: the gradients of h from the output.
            grad_last: those of the final states, each ``[B, H]``; are overwritten.
            grad_gates: receives the gradient of ``known``.
            grad_recurrent: receives that of ``recurrent``; may be ``grad_gates`` except for the
                GRU.
        """
        by_h, by_c = grad_last[0], grad_last[1] if len(grad_last) > 1 else None
        buffer = grad_gates.new_empty(self.sequences, self.padded_width)
        given = (*saved, grad_tops, by_h, by_c, grad_gates, grad_recurrent, buffer)
        self._call(self._library.heedful_direction_backward, *given)

    def _call(self, function: Callable[..., int], *given: Tensor | None) -> None:
        count(self._operations)
        threads = torch.get_num_threads() if self._operations > _SMALL else 1
        whole = (*_addresses(given), ctypes.byref(self._shape))
        over_rows(function, whole, self.sequences, threads)


def _addresses(tensors: Sequence[Tensor | None]) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(None if one is None else one.data_ptr()) for one in tensors]
