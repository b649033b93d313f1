"""Cross-entropy over a large vocabulary in C (``cross_entropy.c``), if a compiler is available.

Logits and their exponentials are computed, summed and multiplied in blocks that fit into the
processor's caches. Results are identical for any number of threads.
Shapes: N positions, D width, V vocabulary.
"""

import ctypes
import functools

import torch
from torch import Tensor

from heedful.basics.addresses import readable
from heedful.basics.operation_counting import count
from heedful.kernels.compiling import SOURCES, compiled_library, in_parallel, over_rows

_PADDING = 32  # the largest number of padding columns of a panel


class _Shape(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("rows", "width", "symbols")),
        ("smoothing", ctypes.c_double),
    ]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None if they are not available, which prints a notice once."""
    found = compiled_library(SOURCES / "cross_entropy.c", "the loss over the vocabulary runs")
    if found is not None:
        for function in (found.heedful_loss_block, found.heedful_loss_slab):
            function.restype = ctypes.c_int64
    return found


def is_supported(states: Tensor, table: Tensor, labels: Tensor) -> bool:
    """Whether C supports the tensors: float32 on the CPU, labels within the table."""
    if any(part.dtype != torch.float32 for part in (states, table)):
        return False
    if not readable(states, table, labels):
        return False
    if not states.numel() or not table.numel() or labels.dtype != torch.int64:
        return False
    low, high = labels.aminmax()
    return int(low) >= 0 and int(high) < len(table) and library() is not None


def losses_in_c(
    states: Tensor, table: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss of ``states [N, D]`` with labels ``[N]`` over ``table [V, D]``.

    Returns:
        The smoothed sum; the unsmoothed losses ``[N]``; the sum's gradients of states and table.
    """
    c = library()
    assert c is not None
    # three products: the logits, and the gradients of states and table
    count(3 * 2 * states.numel() * len(table))
    return _Computation(
        c, states.contiguous(), table.contiguous(), labels.contiguous(), smoothing
    ).run()


class _Computation:
    """One computation: its buffers and the calls of C."""

    def __init__(
        self, c: ctypes.CDLL, states: Tensor, table: Tensor, labels: Tensor, smoothing: float
    ) -> None:
        self.c, self.states, self.table, self.labels = c, states, table, labels
        (self.rows, self.width), symbols = states.shape, len(table)
        self.shape = _Shape(self.rows, self.width, symbols, smoothing)
        self.block, slab = c.heedful_loss_block(), c.heedful_loss_slab()
        self.slabs = -(-symbols // slab)
        self.threads = min(torch.get_num_threads(), -(-self.rows // self.block))
        padded_symbols, padded_width = self.slabs * slab, self.width + _PADDING
        self.by_symbol = table.new_empty(padded_symbols, self.width)
        self.by_column = table.new_empty(padded_symbols, padded_width)
        self.exponentials = table.new_empty(self.threads, self.block, padded_symbols)
        self.scales = table.new_empty(self.threads, self.slabs, self.block)
        self.buffers = table.new_empty(
            self.threads, self.block * (self.width + padded_width + self.slabs + 3)
        )
        # Smoothing subtracts the same gradient from every symbol's row.
        self.column_sums = table.sum(0, dtype=torch.float64)
        shared = states.sum(0, dtype=torch.float64) * (-smoothing / symbols)
        self.table_gradient = shared.to(table.dtype).expand(symbols, -1).contiguous()
        self.state_gradient = torch.empty_like(states)
        self.plain_losses, self.smoothed_losses = self.column_sums.new_empty(2, self.rows)

    def run(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute all blocks, one per thread at a time."""
        given = [ctypes.byref(self.shape), *_addresses(self.table, self.by_symbol, self.by_column)]
        over_rows(self.c.heedful_loss_pack, given, self.slabs, self.threads)
        for first in range(0, self.rows, self.block * self.threads):
            end = min(first + self.block * self.threads, self.rows)
            blocks = [
                slice(start, min(start + self.block, end))
                for start in range(first, end, self.block)
            ]
            in_parallel(
                self.c.heedful_loss_rows, [self._block_arguments(*one) for one in enumerate(blocks)]
            )
            self._add_to_table(blocks)
        smoothed_losses, plain_losses = (
            self.smoothed_losses.sum().float(),
            self.plain_losses.float(),
        )
        return smoothed_losses, plain_losses, self.state_gradient, self.table_gradient

    def _block_arguments(self, slot: int, rows: slice) -> tuple[object, ...]:
        results = (self.plain_losses[rows], self.smoothed_losses[rows], self.state_gradient[rows])
        return (
            ctypes.byref(self.shape),
            *_addresses(self.states[rows], self.labels[rows], self.table, self.column_sums),
            *_addresses(self.by_symbol, self.by_column, self.exponentials[slot], self.scales[slot]),
            *_addresses(*results, self.buffers[slot]),
            ctypes.c_int64(rows.stop - rows.start),
        )

    def _add_to_table(self, blocks: list[slice]) -> None:
        """Add the blocks in order. Each thread updates its own range of symbols."""
        edges = [self.slabs * i // self.threads for i in range(self.threads + 1)]
        for slot, rows in enumerate(blocks):
            given = (
                ctypes.byref(self.shape),
                *_addresses(
                    self.states[rows], self.labels[rows], self.exponentials[slot], self.scales[slot]
                ),
                ctypes.c_int64(rows.stop - rows.start),
                *_addresses(self.table_gradient),
            )
            calls = [
                (
                    *given,
                    *_addresses(self.buffers[i]),
                    ctypes.c_int64(edges[i]),
                    ctypes.c_int64(edges[i + 1]),
                )
                for i in range(self.threads)
            ]
            in_parallel(self.c.heedful_loss_table_gradient, calls)


def _addresses(*parts: Tensor) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(part.data_ptr()) for part in parts]
