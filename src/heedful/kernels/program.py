"""A program: a sequence of layers that C runs for a block of rows at a time.

The weights are copied and packed into panels.
Shapes: I inputs and O outputs of a product; D width of the model.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.shared_tensors import shared_tensor
from heedful.kernels.cached_attention import HeadsInC, StepsInC
from heedful.kernels.compiling import SOURCES, compiled_library, raise_failed

_LINEAR, _NORM, APPEND, READ_CACHE, SELF_ATTEND, _LINEAR_INT8, _LINEAR_BFLOAT16 = range(7)
_ACTIVATIONS: dict[str | None, int] = {None: 0, "relu": 1, "silu": 2, "gelu-tanh": 3}
_BLOCK = 96  # rows: a multiple of 6 and 12, the tile heights in C
_ROW_PADDING = 16  # unused columns between rows, which avoid cache conflicts
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
    """``struct memory``: the keys and values to read, and the buffers for new ones."""

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
    """The kernel does not support an operation, or no compiler is available."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled operations; None if they are not available, which prints a notice once."""
    found = compiled_library(SOURCES / "program.c", "search runs")
    if found is not None:
        for function in (
            found.heedful_panel_columns,
            found.heedful_int8_max_input,
            found.heedful_bfloat16_pairs,
        ):
            function.restype = ctypes.c_int64
    return found


class Memory(NamedTuple):
    """The keys and values to read, and buffers for those of the current step."""

    steps: StepsInC
    """The keys and values to read."""
    new_keys: Tensor | None = None
    """``[N, 1, G, D]``, contiguous; for the operation APPEND."""
    new_values: Tensor | None = None

    def in_c(self) -> _MemoryInC:
        """The argument for C."""
        kept = (self.new_keys, self.new_values)
        return _MemoryInC(self.steps, *(None if x is None else x.data_ptr() for x in kept))


class _Slots(NamedTuple):
    """The first columns of a row's values in the scratch buffer."""

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
    """One scale for each output ``[O]``."""
    bias: Tensor | None
    """``[O]``"""
    largest: int
    """The largest absolute value of a quantised input."""


class Tables(NamedTuple):
    """The embeddings, from which the input rows are computed."""

    symbols: Tensor
    """The embedding of each symbol ``[V, D]``."""
    scale: float
    """Factor of the embeddings."""
    positions: Tensor
    """Position embeddings ``[L, D]``."""


class Heads(NamedTuple):
    """The sizes of an attention layer."""

    heads: int
    groups: int
    """Key and value heads."""
    width: int
    scale: float
    """Factor of the dot products."""


class Program:
    """A sequence of operations on rows. :meth:`close` adds the final product.

    Args:
        tables: the embeddings.
        widest: outputs of the widest product except the last.
        context: width of the widest attention output.

    Raises:
        NotFusedError: no compiler is available. Methods raise it for unsupported operations.
    """

    def __init__(self, tables: Tables, widest: int, context: int) -> None:
        found = library()
        if found is None:
            raise NotFusedError
        self._function = found.heedful_run_program
        read = (tables.symbols, tables.positions)
        if any(part.dtype != torch.float32 or not part.is_contiguous() for part in read):
            raise NotFusedError
        (symbols, dim), self.outputs = tables.symbols.shape, 0
        self.longest = len(tables.positions)
        self._columns = int(found.heedful_panel_columns())
        self._largest = int(found.heedful_int8_max_input())
        self._paired = bool(found.heedful_bfloat16_pairs())
        self._operations: list[_Operation] = []
        self._tensors: list[Tensor] = [*read]  # keeps tensors alive that C reads
        padded, widest, context = (self._padded(width) for width in (dim, widest, context))
        self.slots = _Slots(0, padded, 2 * padded, 2 * padded + widest)
        self._width = 2 * padded + widest + context + _ROW_PADDING
        embedding = _EmbeddingInC(*(part.data_ptr() for part in read), symbols, tables.scale)
        self._plan = _Plan(embedding, 0, self._width, _BLOCK, dim)

    def attend(self, kind: int, heads: Heads, memory: int = 0) -> None:
        """Add an attention layer. It reads ``slots.projected`` and writes ``slots.context``.

        Args:
            kind: READ_CACHE attends to the keys and values in ``memory``; APPEND first appends the
                row's own; SELF_ATTEND attends to the rows of the same sequence.
            heads: its sizes.
            memory: index of the memory.
        """
        slots, width = self.slots, heads.groups * heads.width
        key = slots.projected + heads.heads * heads.width
        if kind == APPEND:
            self._add(APPEND, key, key + width, memory, width)
        reading = self._add(
            READ_CACHE if kind == APPEND else kind, slots.projected, slots.context, memory
        )
        reading.heads = HeadsInC(heads.heads, heads.groups, heads.width, heads.width, heads.scale)
        reading.inputs = key

    def norm(
        self, weight: Tensor, bias: Tensor | None, epsilon: float, start: int, to: int
    ) -> None:
        """Add a layer norm."""
        weight, bias = weight.detach().clone(), _bias_of(bias, weight).clone()
        self._tensors += [weight, bias]
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
        """Add linear maps of one input with concatenated outputs; ``add`` is a residual column."""
        if activation not in _ACTIVATIONS:
            raise NotFusedError
        int8 = [part for part in parts if isinstance(part, Int8Map)]
        plain = [part for part in parts if isinstance(part, Map)]
        if int8 and plain:
            raise NotFusedError
        make = self._int8_product(int8, start, to) if int8 else self._product(plain, start, to)
        make.add, make.activation = add, _ACTIVATIONS[activation]

    def close(self, parts: Sequence[Map] | Sequence[Int8Map], start: int) -> None:
        """Add the linear maps whose outputs are the output of the program."""
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
        """The output ``[N, O]`` for independent rows or for sequences of rows.

        Args:
            tokens: integers ``[N]``, contiguous.
            memories: the memories of READ_CACHE and APPEND; empty for other programs.
            ends: integers ``[B + 1]``: the first row of each sequence, and the end of the last;
                None for independent rows.
            position: the position of the rows, or of the first row of each sequence; or contiguous
                integers ``[N]``, the position of each row.

        Raises:
            IndexError: a token is out of range.
        """
        arguments = (_MemoryInC * len(memories))()
        for place, memory in enumerate(memories):
            if memory is not None:
                arguments[place] = memory.in_c()
        own = position.data_ptr() if isinstance(position, Tensor) else None
        output = torch.empty(len(tokens), self.outputs)
        failed = self._function(
            ctypes.c_void_p(tokens.data_ptr()),
            ctypes.c_void_p(output.data_ptr()),
            ctypes.byref(self._in_c),
            ctypes.byref(arguments) if memories else None,
            ctypes.c_void_p(None if ends is None else ends.data_ptr()),
            ctypes.byref(self._plan),
            ctypes.c_int64(0 if isinstance(position, Tensor) else position),
            ctypes.c_void_p(own),
            ctypes.c_int64(len(tokens) if ends is None else len(ends) - 1),
            ctypes.c_int64(torch.get_num_threads()),
        )
        raise_failed(failed)
        return output

    def _padded(self, width: int) -> int:
        """A width rounded up to whole panels, whose last columns are also written."""
        return -(-width // self._columns) * self._columns

    def _product(self, parts: Sequence[Map], start: int, to: int) -> _Operation:
        """Add a product with concatenated matrices ``[O, I]``, packed into panels of columns."""
        outputs, inputs = sum(len(part.weight) for part in parts), parts[0].weight.shape[1]
        padded = parts[0].weight.new_zeros(self._padded(outputs), inputs)
        torch.cat([part.weight.detach() for part in parts], out=padded[:outputs])
        half = padded.dtype == torch.bfloat16
        if half and self._paired:  # pairs of inputs of a column are adjacent
            padded = F.pad(padded, (0, inputs % 2))
            panels = padded.view(-1, self._columns, padded.shape[1] // 2, 2).transpose(1, 2)
        else:
            panels = padded.view(-1, self._columns, inputs).transpose(1, 2)
            if half:  # interleave the two halves of a panel
                panels = panels.unflatten(2, (2, -1)).transpose(2, 3)
        bias = torch.zeros(len(padded))
        bias[:outputs] = torch.cat([_bias_of(part.bias, part.weight[:, 0]) for part in parts])
        self._tensors += [shared_tensor(panels.contiguous()), bias]
        operation = self._add(_LINEAR_BFLOAT16 if half else _LINEAR, start, to, 0, inputs, outputs)
        where = self._tensors[-2].data_ptr()
        operation.weight, operation.narrow = (None, where) if half else (where, None)
        operation.bias = bias.data_ptr()
        return operation

    def _int8_product(self, parts: Sequence[Int8Map], start: int, to: int) -> _Operation:
        """Add an int8 product."""
        if self._largest < parts[0].largest:
            raise NotFusedError
        whole = torch.cat([part.weight for part in parts])
        scales = torch.cat([part.scales for part in parts])
        outputs, inputs = whole.shape
        padded = whole.new_zeros(self._padded(outputs), -(-inputs // 4) * 4)
        padded[:outputs, :inputs] = whole
        fours = padded.view(-1, self._columns, padded.shape[1] // 4, 4)
        kept = [shared_tensor(fours.transpose(1, 2).contiguous()), padded.sum(1, dtype=torch.int32)]
        columns = scales.new_zeros(2, len(padded))
        columns[0, :outputs] = scales
        columns[1, :outputs] = torch.cat([_bias_of(part.bias, part.scales) for part in parts])
        self._tensors += [*kept, columns]
        operation = self._add(_LINEAR_INT8, start, to, 0, inputs, outputs)
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
