"""Modules as a program of the kernel that computes whole layers (:mod:`heedful.kernels.program`).

What modules compute is read from them once; it is read again when their weights change.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import MultiHeadAttention
from heedful.attention.normalizers import Softmax
from heedful.attention.scores import Dot, ScaledDot
from heedful.kernels.program import READ, Heads, Int8Map, Map, NotFusedError, Program, Tables
from heedful.layers.bfloat16_linear import Bfloat16Linear
from heedful.layers.int8_linear import Int8Linear
from heedful.layers.transformer import DecoderLayer, EncoderLayer, Residual

Block = EncoderLayer | DecoderLayer


class Embedding(NamedTuple):
    """How tokens become the rows that the first block is given."""

    tables: Tables
    modules: tuple[nn.Module, ...]
    """What computes the rows where nothing is fused: where one is hooked, nothing is."""


class ModuleProgram:
    """The program of some blocks; :meth:`close` ends it.

    Args:
        layers: the blocks that will be added, from which rows get their width.
        embedding: what comes before them.

    Attributes:
        program: of the kernel.

    Raises:
        NotFusedError: there is no compiler; also of the methods, for what the kernel does not know.
    """

    def __init__(self, layers: Sequence[Block], embedding: Embedding) -> None:
        known = (nn.Linear, Int8Linear, Bfloat16Linear)
        if any(type(one.feed_forward.expand) not in known for one in layers):
            raise NotFusedError
        self._attentions = [part for layer in layers for part in _attentions(layer)]
        widths = [(part.heads + 2 * part.key_heads) * part.head_dim for part in self._attentions]
        widths += [layer.feed_forward.expand.out_features for layer in layers]
        context = max(part.heads * part.head_dim for part in self._attentions)
        self.program = Program(embedding.tables, max(widths), context)

    @property
    def watched(self) -> bool:
        """Whether somebody watches an attention, which only its module can show."""
        return any(part.watched_at_all for part in self._attentions)

    def sublayer(self, residual: Residual, write: Callable[[int], None]) -> None:
        """A sublayer and what is around it.

        Args:
            residual: that.
            write: adds the sublayer, given where its input stands; its result is added to
                ``slots.hidden``.
        """
        slots = self.program.slots
        if residual.pre_norm:
            self._norm(residual.norm, slots.hidden, slots.normed)
        write(slots.normed if residual.pre_norm else slots.hidden)
        if not residual.pre_norm:
            self._norm(residual.norm, slots.hidden, slots.hidden)

    def feed_forward(self, layer: Block) -> None:
        """The feed-forward network of a block."""
        network, program, slots = layer.feed_forward, self.program, self.program.slots

        def write(start: int) -> None:
            expand, contract = maps_of([network.expand]), maps_of([network.contract])
            program.linear(expand, start, slots.projected, activation=network.activation)
            program.linear(contract, slots.projected, slots.hidden, add=slots.hidden)

        self.sublayer(layer.around_feed_forward, write)

    def attend(self, kind: int, attention: MultiHeadAttention, start: int, memory: int = 0) -> None:
        """An attention: its projections, in one product where they have the same input, and so on.

        Args:
            kind: as :meth:`heedful.kernels.program.Program.attend` takes it.
            attention: what does it.
            start: where its input stands.
            memory: which memory.
        """
        scale, value = _scale(attention), attention.value_projection
        output = attention.output_projection
        if scale is None or value is None or output is None:
            raise NotFusedError
        parts: list[nn.Module] = [attention.query_projection]
        if kind != READ:
            parts += [attention.key_projection, value]
        program, slots = self.program, self.program.slots
        program.linear(maps_of(parts), start, slots.projected)
        heads = Heads(attention.heads, attention.key_heads, attention.head_dim, scale)
        program.attend(kind, heads, memory)
        program.linear(maps_of([output]), slots.context, slots.hidden, add=slots.hidden)

    def close(self, norm: nn.Module, parts: Sequence[nn.Module | Map]) -> None:
        """What follows the blocks, then the maps whose results are the output."""
        slots = self.program.slots
        start = slots.hidden
        if type(norm) is not nn.Identity:
            self._norm(norm, slots.hidden, slots.normed)
            start = slots.normed
        self.program.close(maps_of(parts), start)

    def _norm(self, norm: nn.Module, start: int, to: int) -> None:
        if type(norm) is not nn.LayerNorm or norm.weight is None:
            raise NotFusedError
        self.program.norm(norm.weight, norm.bias, norm.eps, start, to)


def _attentions(layer: Block) -> Iterator[MultiHeadAttention]:
    """The attentions of a block."""
    yield layer.self_attention
    if isinstance(layer, DecoderLayer):
        yield layer.cross_attention


def _scale(attention: MultiHeadAttention) -> float | None:
    """The scale of its dot products, if that and a softmax are all that it does."""
    parts = attention.mechanism
    known = type(parts.score) in (Dot, ScaledDot) and type(parts.normalize) is Softmax
    return parts.fused_scale(attention.head_dim) if known and parts.positions is None else None


def maps_of(parts: Sequence[nn.Module | Map]) -> list[Map] | list[Int8Map]:
    """What linear maps compute: all are ``nn.Linear``, or all bfloat16, or all int8."""
    int8 = [part for part in parts if isinstance(part, Int8Linear)]
    if len(int8) == len(parts):
        return [Int8Map(*part.whole(), part.bias, part.largest) for part in int8]
    return [_plain(part) for part in parts]


def _plain(part: nn.Module | Map) -> Map:
    """A linear map as it comes, or rounded to bfloat16; else NotFusedError."""
    if isinstance(part, Map):
        return part
    if isinstance(part, Bfloat16Linear):
        return Map(part.rounded, part.bias)
    weight: Tensor | None = getattr(part, "weight", None)
    if type(part) is not nn.Linear or weight is None or weight.dtype != torch.float32:
        raise NotFusedError
    return Map(part.weight, part.bias)
