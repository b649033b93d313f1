"""Translates modules to a program of the kernel for whole layers (:mod:`heedful.kernels.program`).

A program is built once, and rebuilt when weights change.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import MultiHeadAttention
from heedful.attention.normalizers import Softmax
from heedful.attention.scores import Dot, ScaledDot
from heedful.kernels.program import READ_CACHE, Heads, Int8Map, Map, NotFusedError, Program, Tables
from heedful.layers.bfloat16_linear import Bfloat16Linear
from heedful.layers.int8_linear import Int8Linear
from heedful.layers.transformer import DecoderLayer, EncoderLayer, Residual

Block = EncoderLayer | DecoderLayer


class Embedding(NamedTuple):
    """How tokens become the input of the first block."""

    tables: Tables
    modules: tuple[nn.Module, ...]
    """The modules of the embedding; if one has a hook, nothing is fused."""


class ModuleProgram:
    """Builds the program of some blocks; :meth:`close` completes it.

    Args:
        layers: the blocks that will be added; they determine the width of rows.
        embedding: the embedding before them.

    Attributes:
        program: the program of the kernel.

    Raises:
        NotFusedError: there is no compiler; in methods, if the kernel does not support a module.
    """

    def __init__(self, layers: Sequence[Block], embedding: Embedding) -> None:
        known = (nn.Linear, Int8Linear, Bfloat16Linear)
        widths = []
        for layer in layers:
            network = layer.feed_forward
            if network is None or type(network.expand) not in known or network.gate is not None:
                raise NotFusedError
            widths.append(network.expand.out_features)
        if not widths:
            raise NotFusedError
        self._attentions = [part for layer in layers for part in _attentions(layer)]
        widths += [(part.heads + 2 * part.key_heads) * part.head_dim for part in self._attentions]
        context = max(part.heads * part.head_dim for part in self._attentions)
        self.program = Program(embedding.tables, max(widths), context)

    @property
    def watched(self) -> bool:
        """Whether an attention is watched, which only its module supports."""
        return any(part.watched_at_all for part in self._attentions)

    def sublayer(self, residual: Residual, write: Callable[[int], None]) -> None:
        """Add a sublayer with its residual connection and norm.

        Args:
            residual: the wrapper of the sublayer.
            write: adds the sublayer, given the slot of its input; its result is added to
                ``slots.hidden``.
        """
        slots = self.program.slots
        if residual.pre_norm:
            self._norm(residual.norm, slots.hidden, slots.normed)
        write(slots.normed if residual.pre_norm else slots.hidden)
        if not residual.pre_norm:
            self._norm(residual.norm, slots.hidden, slots.hidden)

    def feed_forward(self, layer: Block) -> None:
        """Add the feed-forward network of a block."""
        network, around = layer.feed_forward, layer.around_feed_forward
        program, slots = self.program, self.program.slots
        if network is None or around is None or network.gate is not None:
            raise NotFusedError

        def write(start: int) -> None:
            expand, contract = maps_of([network.expand]), maps_of([network.contract])
            program.linear(expand, start, slots.projected, activation=network.activation)
            program.linear(contract, slots.projected, slots.hidden, add=slots.hidden)

        self.sublayer(around, write)

    def attend(self, kind: int, attention: MultiHeadAttention, start: int, memory: int = 0) -> None:
        """Add an attention with its projections, in one product if they have the same input.

        Args:
            kind: as in :meth:`heedful.kernels.program.Program.attend`.
            attention: the module.
            start: the slot of its input.
            memory: the index of the memory.
        """
        scale, value = _scale(attention), attention.value_projection
        output = attention.output_projection
        if scale is None or value is None or output is None:
            raise NotFusedError
        parts: list[nn.Module] = [attention.query_projection]
        if kind != READ_CACHE:
            parts += [attention.key_projection, value]
        program, slots = self.program, self.program.slots
        program.linear(maps_of(parts), start, slots.projected)
        heads = Heads(attention.heads, attention.key_heads, attention.head_dim, scale)
        program.attend(kind, heads, memory)
        program.linear(maps_of([output]), slots.context, slots.hidden, add=slots.hidden)

    def close(self, norm: nn.Module, parts: Sequence[nn.Module | Map]) -> None:
        """Add the final norm and the output maps."""
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


def self_attention_of(layer: Block) -> MultiHeadAttention:
    """The self-attention of a block; raises NotFusedError if it is linear."""
    if not isinstance(layer.self_attention, MultiHeadAttention):
        raise NotFusedError
    return layer.self_attention


def _attentions(layer: Block) -> Iterator[MultiHeadAttention]:
    """The attention modules of a block; raises NotFusedError if one is linear."""
    yield self_attention_of(layer)
    if isinstance(layer, DecoderLayer):
        yield layer.cross_attention


def _scale(attention: MultiHeadAttention) -> float | None:
    """The scale of its dot products, if it is a plain softmax of dot products; else None."""
    parts = attention.mechanism
    known = type(parts.score) in (Dot, ScaledDot) and type(parts.normalize) is Softmax
    known = known and attention.projects_only and attention.mask is None
    return parts.fused_scale(attention.head_dim) if known and parts.positions is None else None


def maps_of(parts: Sequence[nn.Module | Map]) -> list[Map] | list[Int8Map]:
    """Linear maps for the kernel: all are ``nn.Linear``, or all bfloat16, or all int8."""
    int8 = [part for part in parts if isinstance(part, Int8Linear)]
    if len(int8) == len(parts):
        return [Int8Map(*part.whole(), part.bias, part.largest) for part in int8]
    return [_plain(part) for part in parts]


def _plain(part: nn.Module | Map) -> Map:
    """A linear map in float32 or bfloat16; raises NotFusedError for others."""
    if isinstance(part, Map):
        return part
    if isinstance(part, Bfloat16Linear):
        return Map(part.rounded, part.bias)
    weight: Tensor | None = getattr(part, "weight", None)
    if type(part) is not nn.Linear or weight is None or weight.dtype != torch.float32:
        raise NotFusedError
    return Map(part.weight, part.bias)
