"""A list of operations on the numbers of a row, which C does for a block of rows at a time.

What modules compute is read from them once and noted down; weights are laid out anew for it, which
is done again when they change.
Shapes: I, O columns into and out of a product; D width of the model.
"""

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import MultiHeadAttention
from heedful.attention.normalizers import Softmax
from heedful.attention.scores import Dot, ScaledDot
from heedful.kernels.cached_attention import HeadsInC, StepsInC
from heedful.kernels.compiling import SOURCES, compiled_library, raise_failed
from heedful.layers.quantized import Int8Linear
from heedful.layers.rounded import Bfloat16Linear
from heedful.layers.transformer import Activation, DecoderLayer, EncoderLayer, Residual

_LINEAR, _NORM, KEEP, READ, ATTEND, _WHOLE, _HALF = range(7)
_ACTIVATIONS: dict[Activation | None, int] = {None: 0, "relu": 1, "silu": 2, "gelu-tanh": 3}
_BLOCK = 96  # rows: a multiple of 6 and of 12, which C takes at a time
_APART = 16  # columns between rows beyond what is used, so that they do not meet in the cache
_OUTPUT = -1

Block = EncoderLayer | DecoderLayer


class _Operation(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("kind", "start", "to", "add", "inputs", "outputs")),
        *((name, ctypes.c_int64) for name in ("activation", "memory")),
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "narrow", "sums")),
        ("epsilon", ctypes.c_double),
        ("heads", HeadsInC),
    ]


class MemoryInC(ctypes.Structure):
    """``struct memory``: what rows read, and where a step's keys and values go."""

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
    """A part that only its own module can compute."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled operations; None where they cannot be had, which is said once."""
    found = compiled_library(SOURCES / "program.c", "search runs")
    if found is not None:
        for told in (found.heedful_columns, found.heedful_largest, found.heedful_paired):
            told.restype = ctypes.c_int64
    return found


class _Slots(NamedTuple):
    """First columns of what a row has at the same time."""

    hidden: int
    normed: int
    projected: int
    context: int


class Map(NamedTuple):
    """A linear map that is no module."""

    weight: Tensor
    """``[O, I]``"""
    bias: Tensor | None
    """``[O]``"""


class Embedding(NamedTuple):
    """How tokens become the rows that the first block is given."""

    table: Tensor
    """``[V, D]``"""
    scale: float
    """The vectors' factor."""
    positions: Tensor
    """What is added at each position ``[L, D]``."""
    modules: tuple[nn.Module, ...] = ()
    """What computes the rows where nothing is fused: hooks on it are obeyed."""


class Program:
    """The operations of some blocks; :meth:`close` ends it with a product.

    Args:
        layers: the blocks that will be added, from which rows get their width.
        embedding: what comes before them.

    Raises:
        NotFusedError: there is no compiler; also of the methods, for what C does not know.
    """

    def __init__(self, layers: Sequence[Block], embedding: Embedding) -> None:
        found = library()
        known = (nn.Linear, Int8Linear, Bfloat16Linear)
        if found is None or any(type(one.feed_forward.expand) not in known for one in layers):
            raise NotFusedError
        self._function = found.heedful_fused
        tables = (embedding.table, embedding.positions)
        if any(part.dtype != torch.float32 or not part.is_contiguous() for part in tables):
            raise NotFusedError
        (symbols, dim), self.outputs = embedding.table.shape, 0
        self.longest = len(embedding.positions)
        self._columns = int(found.heedful_columns())
        self._largest = int(found.heedful_largest())
        self._paired = bool(found.heedful_paired())
        self._operations: list[_Operation] = []
        self._kept: list[Tensor] = [*tables]  # what C reads
        self._watched = [part for layer in layers for part in attentions(layer)]
        widest = max((part.heads + 2 * part.key_heads) * part.head_dim for part in self._watched)
        widest = max([widest, *(layer.feed_forward.expand.out_features for layer in layers)])
        context = max(part.heads * part.head_dim for part in self._watched)
        padded, widest, context = (self._whole(width) for width in (dim, widest, context))
        self.slots = _Slots(0, padded, 2 * padded, 2 * padded + widest)
        self._width = 2 * padded + widest + context + _APART
        read = (part.data_ptr() for part in tables)
        told = _EmbeddingInC(*read, symbols, embedding.scale)
        self._plan = _Plan(told, 0, self._width, _BLOCK, dim)

    @property
    def watched(self) -> bool:
        """Whether somebody watches an attention, which only its module can show."""
        return any(part.watched_at_all for part in self._watched)

    def sublayer(self, residual: Residual, write: Callable[[int], None]) -> None:
        """A sublayer and what is around it.

        Args:
            residual: that.
            write: adds the sublayer, given where its input stands; its result is added to
                ``slots.hidden``.
        """
        slots = self.slots
        if residual.pre_norm:
            self.norm(residual.norm, slots.hidden, slots.normed)
        write(slots.normed if residual.pre_norm else slots.hidden)
        if not residual.pre_norm:
            self.norm(residual.norm, slots.hidden, slots.hidden)

    def feed_forward(self, layer: Block) -> None:
        """The feed-forward network of a block."""
        network, slots = layer.feed_forward, self.slots
        if network.activation not in _ACTIVATIONS:
            raise NotFusedError

        def write(start: int) -> None:
            self.linear([network.expand], start, slots.projected, activation=network.activation)
            self.linear([network.contract], slots.projected, slots.hidden, add=slots.hidden)

        self.sublayer(layer.around_feed_forward, write)

    def attend(self, kind: int, attention: MultiHeadAttention, start: int, memory: int = 0) -> None:
        """An attention: its projections, in one product where they have the same input, and so on.

        Args:
            kind: READ, of keys and values in ``memory`` that are there; KEEP, of those after this
                row's own are added to them; ATTEND, to the rows of the same sequence.
            attention: what does it.
            start: where its input stands.
            memory: which memory.
        """
        scale, value = _scale(attention), attention.value_projection
        output = attention.output_projection
        if scale is None or value is None or output is None:
            raise NotFusedError
        slots, width = self.slots, attention.key_heads * attention.head_dim
        key = slots.projected + attention.heads * attention.head_dim
        parts: list[nn.Module] = [attention.query_projection]
        if kind != READ:
            parts += [attention.key_projection, value]
        self.linear(parts, start, slots.projected)
        if kind == KEEP:
            self._add(KEEP, key, key + width, memory, width)
        shape = HeadsInC(
            *(attention.heads, attention.key_heads, attention.head_dim, attention.head_dim, scale)
        )
        reading = self._add(READ if kind == KEEP else kind, slots.projected, slots.context, memory)
        reading.heads, reading.inputs = shape, key
        self.linear([output], slots.context, slots.hidden, add=slots.hidden)

    def norm(self, norm: nn.Module, start: int, to: int) -> None:
        """A layer norm."""
        if type(norm) is not nn.LayerNorm or norm.weight is None:
            raise NotFusedError
        weight = norm.weight.detach().clone()
        bias = torch.zeros_like(weight) if norm.bias is None else norm.bias.detach().clone()
        self._kept += [weight, bias]
        operation = self._add(_NORM, start, to, 0, len(weight), len(weight))
        operation.weight, operation.bias = weight.data_ptr(), bias.data_ptr()
        operation.epsilon = norm.eps

    def last_norm(self, norm: nn.Module) -> int:
        """What follows the last block, if anything; where its result stands."""
        if type(norm) is nn.Identity:
            return self.slots.hidden
        self.norm(norm, self.slots.hidden, self.slots.normed)
        return self.slots.normed

    def linear(
        self,
        parts: Sequence[nn.Module | Map],
        start: int,
        to: int,
        *,
        add: int = -1,
        activation: Activation | None = None,
    ) -> None:
        """Linear maps of one input, their results side by side; ``add`` is added to them.

        They are all ``nn.Linear``, or all bfloat16, or all int8.
        """
        int8 = [part for part in parts if isinstance(part, Int8Linear)]
        if len(int8) == len(parts):
            operation = self._whole_product(int8, start, to)
        else:
            operation = self._product([_plain(part) for part in parts], start, to)
        operation.add, operation.activation = add, _ACTIVATIONS[activation]

    def close(self, norm: nn.Module, parts: Sequence[nn.Module | Map]) -> None:
        """What follows the blocks, then the maps whose results are the output."""
        self.linear(parts, self.last_norm(norm), _OUTPUT)
        self.outputs = self._operations[-1].outputs
        self._in_c = (_Operation * len(self._operations))(*self._operations)
        self._plan.operations, self._plan.output_stride = len(self._operations), self.outputs

    def run(
        self,
        tokens: Tensor,
        memories: ctypes.Array[MemoryInC] | None,
        ends: Tensor | None,
        position: int | Tensor,
    ) -> Tensor:
        """The output ``[N, O]`` for rows, or for sequences of them.

        Args:
            tokens: integers ``[N]``, contiguous.
            memories: what READ and KEEP need.
            ends: integers ``[B + 1]``: where sequences of rows begin, and the last ends; None where
                each row is for itself.
            position: where the rows stand, or the first of each sequence; or contiguous integers
                ``[N]``, where each row stands.

        Raises:
            IndexError: a token is not in the table.
        """
        own = position.data_ptr() if isinstance(position, Tensor) else None
        output = torch.empty(len(tokens), self.outputs)
        failed = self._function(
            ctypes.c_void_p(tokens.data_ptr()),
            ctypes.c_void_p(output.data_ptr()),
            ctypes.byref(self._in_c),
            None if memories is None else ctypes.byref(memories),
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

    def _whole_product(self, parts: Sequence[Int8Linear], start: int, to: int) -> _Operation:
        """The same of whole numbers."""
        if self._largest < parts[0].largest:
            raise NotFusedError
        whole, scales = (torch.cat(both) for both in zip(*(p.whole() for p in parts), strict=True))
        outputs, inputs = whole.shape
        padded = whole.new_zeros(self._whole(outputs), -(-inputs // 4) * 4)
        padded[:outputs, :inputs] = whole
        fours = padded.view(-1, self._columns, padded.shape[1] // 4, 4)
        kept = [fours.transpose(1, 2).contiguous(), padded.sum(1, dtype=torch.int32)]
        columns = scales.new_zeros(2, len(padded))
        columns[0, :outputs] = scales
        columns[1, :outputs] = torch.cat([_bias_of(p.bias, p.whole()[1]) for p in parts])
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


def attentions(layer: Block) -> Iterator[MultiHeadAttention]:
    """The attentions of a block."""
    yield layer.self_attention
    if isinstance(layer, DecoderLayer):
        yield layer.cross_attention


def _scale(attention: MultiHeadAttention) -> float | None:
    """The scale of its dot products, if that and a softmax are all that it does."""
    parts = attention.mechanism
    known = type(parts.score) in (Dot, ScaledDot) and type(parts.normalize) is Softmax
    return parts.fused_scale(attention.head_dim) if known and parts.positions is None else None


def _plain(part: nn.Module | Map) -> Map:
    """A linear map as it comes, or rounded to bfloat16; else NotFusedError."""
    if isinstance(part, Map):
        return part
    if isinstance(part, Bfloat16Linear):
        return Map(part.rounded, part.bias)
    if type(part) is not nn.Linear or part.weight.dtype != torch.float32:
        raise NotFusedError
    return Map(part.weight, part.bias)


def _bias_of(bias: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if bias is None else bias.detach()
