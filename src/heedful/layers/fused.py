"""A decoder's step in one call: all layers for a block of rows, then the next, in C (``fused.c``).

The plain form is the modules themselves, one after the other. What they are is read from them once
and noted as a list of operations on the numbers of a row; weights are laid out anew for it, which
is done again when they change.
Shapes: N rows of search, D width of the model, V vocabulary.
"""

import ctypes
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from heedful.attention import MultiHeadAttention
from heedful.attention.kernels.steps import HEADER, HeadsInC, StepsInC
from heedful.attention.normalizers import Softmax
from heedful.attention.scores import Dot, ScaledDot
from heedful.attention.stepping import can_step
from heedful.basics.compiling import compiled_library, over_rows
from heedful.layers.caches import LayerCaches, SourceMemories
from heedful.layers.transformer import Activation, DecoderLayer, EncoderLayer, Residual

_LINEAR, _NORM, _KEEP, _READ = range(4)
_ACTIVATIONS: dict[Activation | None, int] = {None: 0, "relu": 1, "silu": 2, "gelu-tanh": 3}
_BLOCK = 96  # rows: a multiple of 6 and of 12, which C takes at a time
_APART = 16  # columns between rows beyond what is used, so that they do not meet in the cache
_SMALL = 16  # rows below which a second thread is not worth its call


class _Operation(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("kind", "start", "to", "add", "inputs", "outputs")),
        *((name, ctypes.c_int64) for name in ("activation", "memory")),
        *((name, ctypes.c_void_p) for name in ("weight", "bias")),
        ("epsilon", ctypes.c_double),
        ("heads", HeadsInC),
    ]


class _Memory(ctypes.Structure):
    _fields_ = [("steps", StepsInC), ("kept_key", ctypes.c_void_p), ("kept_value", ctypes.c_void_p)]


class _Plan(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("operations", "width", "block", "input_width", "output_stride")
    ]


class _UnknownError(Exception):
    """A part that only its own module can compute."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled layers; None where they cannot be had, which is said once."""
    found = compiled_library(Path(__file__).with_suffix(".c"), "search runs", [HEADER])
    if found is not None:
        found.heedful_columns.restype = ctypes.c_int64
    return found


class _Slots(NamedTuple):
    """First columns of what a row has at the same time."""

    hidden: int
    normed: int
    projected: int
    context: int


class FusedDecoder:
    """The layers of a decoder, what follows them, and the product with the vocabulary.

    Made by :func:`fused_decoder`, which says for what there is one.
    """

    def __init__(
        self,
        layers: Sequence[EncoderLayer | DecoderLayer],
        norm: nn.Module,
        table: Tensor,
        bias: Tensor | None,
    ) -> None:
        found = library()
        if found is None:
            raise _UnknownError
        self._function = found.heedful_fused
        self._columns = int(found.heedful_columns())
        self._operations: list[_Operation] = []
        self._kept: list[Tensor] = []  # what C reads
        self._watched = [part for layer in layers for part in _attentions(layer)]
        self._layers, self._vocabulary, self._dim = len(layers), *table.shape
        heads = layers[0].self_attention
        self._step_shape = (heads.key_heads, heads.head_dim)
        self._slots, width = self._laid_out(layers)
        for number, layer in enumerate(layers):
            self._layer(layer, number)
        if isinstance(norm, nn.LayerNorm):
            self._norm(norm, self._slots.hidden, self._slots.normed)
        elif type(norm) is not nn.Identity:
            raise _UnknownError
        last = self._slots.hidden if type(norm) is nn.Identity else self._slots.normed
        self._product([table], [bias], last, -1)
        self._in_c = (_Operation * len(self._operations))(*self._operations)
        self._plan = _Plan(len(self._operations), width, _BLOCK, self._dim, self._vocabulary)

    @property
    def watched(self) -> bool:
        """Whether somebody watches an attention, which only its module can show."""
        return any(part.watched or part.watched_in_part for part in self._watched)

    def step(
        self, hidden: Tensor, caches: LayerCaches, sources: SourceMemories | None = None
    ) -> Tensor:
        """Logits ``[N, V]``, given the embedded tokens ``[N, D]``; the step is added to ``caches``.

        Args:
            hidden: one token a row, float32 on the CPU.
            caches: of these layers.
            sources: what they read of the sources, where they do.
        """
        rows = len(hidden)
        hidden = hidden.contiguous()
        logits = hidden.new_empty(rows, self._vocabulary)
        steps = hidden.new_empty(2 * self._layers, rows, 1, *self._step_shape).unbind(0)
        own = caches.take(list(zip(steps[::2], steps[1::2], strict=True)))
        read = [] if sources is None else sources.in_place()
        memories = (_Memory * (2 * self._layers))()
        for number, memory in enumerate(own):
            kept = (part.data_ptr() for part in steps[2 * number : 2 * number + 2])
            memories[2 * number] = _Memory(memory.steps.in_c(memory.rows, None), *kept)
        for number, memory in enumerate(read):
            told = memory.steps.in_c(memory.rows, memory.lengths)
            memories[2 * number + 1] = _Memory(told, None, None)
        given = [
            ctypes.c_void_p(hidden.data_ptr()),
            ctypes.c_void_p(logits.data_ptr()),
            *(ctypes.byref(part) for part in (self._in_c, memories, self._plan)),
        ]
        over_rows(self._function, given, rows, 1 if rows < _SMALL else torch.get_num_threads())
        return logits

    def _laid_out(self, layers: Sequence[EncoderLayer | DecoderLayer]) -> tuple[_Slots, int]:
        """Where in a row what stands, and how wide rows are."""
        attentions = [part for layer in layers for part in _attentions(layer)]
        widest = max((part.heads + 2 * part.key_heads) * part.head_dim for part in attentions)
        widest = max([widest, *(layer.feed_forward.expand.out_features for layer in layers)])
        own = max(part.heads * part.head_dim for part in attentions)
        dim, widest, own = (self._whole(width) for width in (self._dim, widest, own))
        return _Slots(0, dim, 2 * dim, 2 * dim + widest), 2 * dim + widest + own + _APART

    def _whole(self, width: int) -> int:
        """A width in whole panels, whose last columns are written too."""
        return -(-width // self._columns) * self._columns

    def _layer(self, layer: EncoderLayer | DecoderLayer, number: int) -> None:
        if layer.self_attention.key_heads * layer.self_attention.head_dim != self._kept_width():
            raise _UnknownError
        start = self._around(layer.around_self)
        self._attend(layer.self_attention, start, 2 * number, of_self=True)
        self._behind(layer.around_self)
        if isinstance(layer, DecoderLayer):
            start = self._around(layer.around_cross)
            self._attend(layer.cross_attention, start, 2 * number + 1, of_self=False)
            self._behind(layer.around_cross)
        start = self._around(layer.around_feed_forward)
        network, slots = layer.feed_forward, self._slots
        if network.activation not in _ACTIVATIONS:
            raise _UnknownError
        expand, contract = _plain(network.expand), _plain(network.contract)
        self._product(
            [expand.weight], [expand.bias], start, slots.projected, activation=network.activation
        )
        self._product(
            [contract.weight], [contract.bias], slots.projected, slots.hidden, add=slots.hidden
        )
        self._behind(layer.around_feed_forward)

    def _kept_width(self) -> int:
        return self._step_shape[0] * self._step_shape[1]

    def _around(self, residual: Residual) -> int:
        """What comes before a sublayer; where its input stands."""
        if not residual.pre_norm:
            return self._slots.hidden
        self._norm(residual.norm, self._slots.hidden, self._slots.normed)
        return self._slots.normed

    def _behind(self, residual: Residual) -> None:
        if not residual.pre_norm:
            self._norm(residual.norm, self._slots.hidden, self._slots.hidden)

    def _attend(
        self, attention: MultiHeadAttention, start: int, memory: int, *, of_self: bool
    ) -> None:
        """Projections, in one product where they have the same input, reading, and the output."""
        scale, value, last = (
            _scale(attention),
            attention.value_projection,
            attention.output_projection,
        )
        if scale is None or value is None or last is None:
            raise _UnknownError
        slots, width = self._slots, attention.heads * attention.head_dim
        parts = [_plain(attention.query_projection)]
        if of_self:
            parts += [_plain(attention.key_projection), _plain(value)]
        self._product([p.weight for p in parts], [p.bias for p in parts], start, slots.projected)
        if of_self:
            first = slots.projected + width
            self._add(_KEEP, first, first + self._kept_width(), memory, self._kept_width())
        shape = HeadsInC(
            *(attention.heads, attention.key_heads, attention.head_dim, attention.head_dim, scale)
        )
        self._add(_READ, slots.projected, slots.context, memory, heads=shape)
        output = _plain(last)
        self._product([output.weight], [output.bias], slots.context, slots.hidden, add=slots.hidden)

    def _product(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor | None],
        start: int,
        to: int,
        *,
        add: int = -1,
        activation: Activation | None = None,
    ) -> None:
        """Add the product with matrices ``[O, I]``, one below the other, in panels of columns."""
        outputs, inputs = sum(len(weight) for weight in weights), weights[0].shape[1]
        padded = weights[0].new_zeros(self._whole(outputs), inputs)
        torch.cat([weight.detach() for weight in weights], out=padded[:outputs])
        panels = padded.view(-1, self._columns, inputs).transpose(1, 2).contiguous()
        bias, first = padded.new_zeros(len(padded)), 0
        for weight, own in zip(weights, biases, strict=True):
            if own is not None:
                bias[first : first + len(weight)] = own.detach()
            first += len(weight)
        self._kept += [panels, bias]
        operation = self._add(_LINEAR, start, to, 0, inputs, outputs, add=add)
        operation.weight, operation.bias = panels.data_ptr(), bias.data_ptr()
        operation.activation = _ACTIVATIONS[activation]

    def _norm(self, norm: nn.LayerNorm, start: int, to: int) -> None:
        if type(norm) is not nn.LayerNorm or norm.weight is None:
            raise _UnknownError
        weight = norm.weight.detach().clone()
        bias = torch.zeros_like(weight) if norm.bias is None else norm.bias.detach().clone()
        self._kept += [weight, bias]
        operation = self._add(_NORM, start, to, 0, len(weight), len(weight))
        operation.weight, operation.bias = weight.data_ptr(), bias.data_ptr()
        operation.epsilon = norm.eps

    def _add(
        self,
        kind: int,
        start: int,
        to: int,
        memory: int,
        inputs: int = 0,
        outputs: int = 0,
        *,
        add: int = -1,
        heads: HeadsInC | None = None,
    ) -> _Operation:
        operation = _Operation(kind, start, to, add, inputs, outputs, 0, memory)
        if heads is not None:
            operation.heads = heads
        self._operations.append(operation)
        return operation


def _attentions(layer: EncoderLayer | DecoderLayer) -> Iterator[MultiHeadAttention]:
    yield layer.self_attention
    if isinstance(layer, DecoderLayer):
        yield layer.cross_attention


def _scale(attention: MultiHeadAttention) -> float | None:
    """The scale of its dot products, if that and a softmax are all that it does."""
    parts = attention.mechanism
    known = type(parts.score) in (Dot, ScaledDot) and type(parts.normalize) is Softmax
    return parts.fused_scale(attention.head_dim) if known and parts.positions is None else None


def _plain(part: nn.Module) -> nn.Linear:
    if type(part) is not nn.Linear or part.weight.dtype != torch.float32:
        raise _UnknownError
    return part


_made: WeakKeyDictionary[nn.Module, tuple[object, FusedDecoder | None]] = WeakKeyDictionary()


def fused_decoder(
    model: nn.Module,
    layers: Sequence[EncoderLayer | DecoderLayer],
    norm: nn.Module,
    table: Tensor,
    bias: Tensor | None,
) -> FusedDecoder | None:
    """The fused form of a model's decoder, if it can take the place of its modules now.

    It can on the CPU, in float32, without gradients, where there is a compiler, for blocks of
    softmax attention over dot products, with linear maps as they come, and no hooks. It is kept
    as long as the model, and made anew when PyTorch has counted a change of a weight.

    Args:
        model: whose it is.
        layers: its blocks, first to last.
        norm: what follows the last of them.
        table: the output's matrix ``[V, D]``.
        bias: of the logits ``[V]``.
    """
    if not can_step(table) or table.is_inference():
        return None
    watched = [*layers, norm]
    modules = [part for one in watched for part in one.modules()]
    if any(part.training or part._forward_hooks or part._forward_pre_hooks for part in modules):
        return None
    weights = [table, *([] if bias is None else [bias])]
    weights += [weight for one in watched for weight in one.parameters()]
    if any(weight.is_inference() for weight in weights):
        return None
    state = [(weight.data_ptr(), weight._version) for weight in weights]
    known = _made.get(model)
    if known is None or known[0] != state:
        try:
            made = FusedDecoder(layers, norm, table, bias)
        except _UnknownError:
            made = None
        known = _made[model] = (state, made)
    return known[1]
