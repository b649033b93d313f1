"""A program of operations on rows, which C runs for a block of rows at a time.

Weights are copied and repacked for it.
Shapes: I, O columns into and out of a product; D width of the model.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.kernels.cached_attention import HeadsInC, StepsInC
from heedful.kernels.compiling import SOURCES, compiled_library, raise_failed

_LINEAR, _NORM, KEEP, READ, ATTEND, _WHOLE, _HALF = range(7)
_ACTIVATIONS: dict[str | None, int] = {None: 0, "relu": 1, "silu": 2, "gelu-tanh": 3}
_BLOCK = 96  # rows: a multiple of 6 and of 12, which C takes at a time
_APART = 16  # columns between rows beyond what is used, so that they do not meet in the cache
_OUTPUT = -1


class _Operation(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("kind", "start", "to", "add", "inputs", "outputs")),
        *((name, ctypes.c_int64) for name in ("activation", "memory")),
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "narrow", "sums")),
        ("epsilon", ctypes.c_double),
        ("heads", HeadsInC),
    ]


class _MemoryInC(ctypes.Structure):
    """``struct memory``: the keys and values that rows read, and the buffers for new ones."""

    _fields_ = [("steps", StepsInC), ("kept_key", ctypes.c_void_p), ("kept_value", ctypes.c_void_p)]


class _EmbeddingInC(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("table", "positions")),
        ("symbols", ctypes.c_int64),
        ("scale", ctypes.c_double),
    ]


class _Plan(ctypes.Structure):
    _fields_ = [
        ("embedding", _EmbeddingInC),
        *(
            (name, ctypes.c_int64)
            for name in ("operations", "width", "block", "input_width", "output_stride")
        ),
    ]


class NotFusedError(Exception):
    """The kernel does not support an operation, or there is no compiler."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled operations; None if they are not available, which prints a notice once."""
    found = compiled_library(SOURCES / "program.c", "search runs")
    if found is not None:
        for told in (found.heedful_columns, found.heedful_largest, found.heedful_paired):
            told.restype = ctypes.c_int64
    return found


class Memory(NamedTuple):
    """What rows read, and where a step's keys and values go."""

    steps: StepsInC
    """What is read."""
    kept_key: Tensor | None = None
    """``[N, 1, G, D]``, contiguous, of an operation KEEP."""
    kept_value: Tensor | None = None

    def in_c(self) -> _MemoryInC:
        """As C takes it."""
        kept = (self.kept_key, self.kept_value)
        return _MemoryInC(self.steps, *(None if x is None else x.data_ptr() for x in kept))


class _Slots(NamedTuple):
    """First columns of what a row has at the same time."""

    hidden: int
    normed: int
    projected: int
    context: int


class Map(NamedTuple):
    """A linear map in float32 or bfloat16."""

    weight: Tensor
    """``[O, I]``"""
    bias: Tensor | None
    """``[O]``"""


class Int8Map(NamedTuple):
    """A linear map in int8."""

    weight: Tensor
    """int8 ``[O, I]``"""
    scales: Tensor
    """Of its rows ``[O]``."""
    bias: Tensor | None
    """``[O]``"""
    largest: int
    """The largest whole number of an input."""


class Tables(NamedTuple):
    """How tokens become the rows that the first operation is given."""

    symbols: Tensor
    """A vector of each symbol ``[V, D]``."""
    scale: float
    """These vectors' factor."""
    positions: Tensor
    """What is added at each position ``[L, D]``."""


class Heads(NamedTuple):
    """The sizes of an attention."""

    heads: int
    groups: int
    """Heads of keys and values."""
    width: int
    scale: float
    """Of the dot products."""


class Program:
    """The operations on rows, in order; :meth:`close` ends it with a product.

    Args:
        tables: how tokens become rows.
        widest: columns of the widest product but the last.
        context: columns of the widest attention's result.

    Raises:
        NotFusedError: there is no compiler; also of the methods, for what C does not know.
    """

    def __init__(self, tables: Tables, widest: int, context: int) -> None:
        found = library()
        if found is None:
            raise NotFusedError
        self._function = found.heedful_fused
        read = (tables.symbols, tables.positions)
        if any(part.dtype != torch.float32 or not part.is_contiguous() for part in read):
            raise NotFusedError
        (symbols, dim), self.outputs = tables.symbols.shape, 0
        self.longest = len(tables.positions)
        self._columns = int(found.heedful_columns())
        self._largest = int(found.heedful_largest())
        self._paired = bool(found.heedful_paired())
        self._operations: list[_Operation] = []
        self._kept: list[Tensor] = [*read]  # what C reads
        padded, widest, context = (self._whole(width) for width in (dim, widest, context))
        self.slots = _Slots(0, padded, 2 * padded, 2 * padded + widest)
        self._width = 2 * padded + widest + context + _APART
        told = _EmbeddingInC(*(part.data_ptr() for part in read), symbols, tables.scale)
        self._plan = _Plan(told, 0, self._width, _BLOCK, dim)

    def attend(self, kind: int, heads: Heads, memory: int = 0) -> None:
        """An attention, whose projections stand at ``slots.projected``; writes ``slots.context``.

        Args:
            kind: READ, of keys and values in ``memory`` that are there; KEEP, of those after this
                row's own are added to them; ATTEND, to the rows of the same sequence.
            heads: its sizes.
            memory: which memory.
        """
        slots, width = self.slots, heads.groups * heads.width
        key = slots.projected + heads.heads * heads.width
        if kind == KEEP:
            self._add(KEEP, key, key + width, memory, width)
        reading = self._add(READ if kind == KEEP else kind, slots.projected, slots.context, memory)
        reading.heads = HeadsInC(heads.heads, heads.groups, heads.width, heads.width, heads.scale)
        reading.inputs = key

    def norm(
        self, weight: Tensor, bias: Tensor | None, epsilon: float, start: int, to: int
    ) -> None:
        """A layer norm."""
        weight, bias = weight.detach().clone(), _bias_of(bias, weight).clone()
        self._kept += [weight, bias]
        operation = self._add(_NORM, start, to, 0, len(weight), len(weight))
        operation.weight, operation.bias = weight.data_ptr(), bias.data_ptr()
        operation.epsilon = epsilon

    def linear(
        self,
        parts: Sequence[Map] | Sequence[Int8Map],
        start: int,
        to: int,
        *,
        add: int = -1,
        activation: str | None = None,
    ) -> None:
        """Linear maps of one input, their results side by side; ``add`` is added to them."""
        if activation not in _ACTIVATIONS:
            raise NotFusedError
        int8 = [part for part in parts if isinstance(part, Int8Map)]
        plain = [part for part in parts if isinstance(part, Map)]
        if int8 and plain:
            raise NotFusedError
        make = self._whole_product(int8, start, to) if int8 else self._product(plain, start, to)
        make.add, make.activation = add, _ACTIVATIONS[activation]

    def close(self, parts: Sequence[Map] | Sequence[Int8Map], start: int) -> None:
        """The maps whose results are the output."""
        self.linear(parts, start, _OUTPUT)
        self.outputs = self._operations[-1].outputs
        self._in_c = (_Operation * len(self._operations))(*self._operations)
        self._plan.operations, self._plan.output_stride = len(self._operations), self.outputs

    def run(
        self,
        tokens: Tensor,
        memories: Sequence[Memory | None],
        ends: Tensor | None,
        position: int | Tensor,
    ) -> Tensor:
        """The output ``[N, O]`` for rows, or for sequences of them.

        Args:
            tokens: integers ``[N]``, contiguous.
            memories: what READ and KEEP need; none for other programs.
            ends: integers ``[B + 1]``: where sequences of rows begin, and the last ends; None where
                each row is for itself.
            position: where the rows stand, or the first of each sequence; or contiguous integers
                ``[N]``, where each row stands.

        Raises:
            IndexError: a token is not in the table.
        """
        told = (_MemoryInC * len(memories))()
        for place, memory in enumerate(memories):
            if memory is not None:
                told[place] = memory.in_c()
        own = position.data_ptr() if isinstance(position, Tensor) else None
        output = torch.empty(len(tokens), self.outputs)
        failed = self._function(
            ctypes.c_void_p(tokens.data_ptr()),
            ctypes.c_void_p(output.data_ptr()),
            ctypes.byref(self._in_c),
            ctypes.byref(told) if memories else None,
            ctypes.c_void_p(None if ends is None else ends.data_ptr()),
            ctypes.byref(self._plan),
            ctypes.c_int64(0 if isinstance(position, Tensor) else position),
            ctypes.c_void_p(own),
            ctypes.c_int64(len(tokens) if ends is None else len(ends) - 1),
            ctypes.c_int64(torch.get_num_threads()),
        )
        raise_failed(failed)
        return output

    def _whole(self, width: int) -> int:
        """A width in whole panels, whose last columns are written too."""
        return -(-width // self._columns) * self._columns

    def _product(self, parts: Sequence[Map], start: int, to: int) -> _Operation:
        """The product with matrices ``[O, I]``, one below the other, in panels of columns."""
        outputs, inputs = sum(len(part.weight) for part in parts), parts[0].weight.shape[1]
        padded = parts[0].weight.new_zeros(self._whole(outputs), inputs)
        torch.cat([part.weight.detach() for part in parts], out=padded[:outputs])
        half = padded.dtype == torch.bfloat16
        if half and self._paired:  # two inputs of a column, then of the next column
            padded = F.pad(padded, (0, inputs % 2))
            panels = padded.view(-1, self._columns, padded.shape[1] // 2, 2).transpose(1, 2)
        else:
            panels = padded.view(-1, self._columns, inputs).transpose(1, 2)
            if half:  # the panel's two halves, number by number
                panels = panels.unflatten(2, (2, -1)).transpose(2, 3)
        bias = torch.zeros(len(padded))
        bias[:outputs] = torch.cat([_bias_of(part.bias, part.weight[:, 0]) for part in parts])
        self._kept += [panels.contiguous(), bias]
        operation = self._add(_HALF if half else _LINEAR, start, to, 0, inputs, outputs)
        where = self._kept[-2].data_ptr()
        operation.weight, operation.narrow = (None, where) if half else (where, None)
        operation.bias = bias.data_ptr()
        return operation

    def _whole_product(self, parts: Sequence[Int8Map], start: int, to: int) -> _Operation:
        """The same of whole numbers."""
        if self._largest < parts[0].largest:
            raise NotFusedError
        whole = torch.cat([part.weight for part in parts])
        scales = torch.cat([part.scales for part in parts])
        outputs, inputs = whole.shape
        padded = whole.new_zeros(self._whole(outputs), -(-inputs // 4) * 4)
        padded[:outputs, :inputs] = whole
        fours = padded.view(-1, self._columns, padded.shape[1] // 4, 4)
        kept = [fours.transpose(1, 2).contiguous(), padded.sum(1, dtype=torch.int32)]
        columns = scales.new_zeros(2, len(padded))
        columns[0, :outputs] = scales
        columns[1, :outputs] = torch.cat([_bias_of(part.bias, part.scales) for part in parts])
        self._kept += [*kept, columns]
        operation = self._add(_WHOLE, start, to, 0, inputs, outputs)
        operation.narrow, operation.sums = (part.data_ptr() for part in kept)
        operation.weight, operation.bias = columns[0].data_ptr(), columns[1].data_ptr()
        return operation

    def _add(
        self, kind: int, start: int, to: int, memory: int, inputs: int = 0, outputs: int = 0
    ) -> _Operation:
        operation = _Operation(kind, start, to, -1, inputs, outputs, 0, memory)
        self._operations.append(operation)
        return operation


def _bias_of(bias: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if bias is None else bias.detach()
