"""A decoder's step in one call: all layers for a block of rows, then the next.

Shapes: N rows of search, D width of the model, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from heedful.inference.fusing.cached import FusedCache
from heedful.inference.fusing.program import Block, Embedding, ModuleProgram, self_attention_of
from heedful.kernels.cached_attention import can_step
from heedful.kernels.program import APPEND, READ_CACHE, Map, Memory, NotFusedError
from heedful.layers.caches import LayerCaches
from heedful.layers.source_memories import SourceMemories
from heedful.layers.transformer import DecoderLayer


class FusedDecoder:
    """The layers of a decoder, its final norm, and the product with the output table.

    Built by :func:`fused_decoder`.
    """

    def __init__(
        self,
        layers: Sequence[Block],
        norm: nn.Module,
        embedding: Embedding,
        output: nn.Module | Map,
    ) -> None:
        first = self_attention_of(layers[0])
        self._step_shape = (first.key_heads, first.head_dim)
        self._layers, self._like = len(layers), embedding.tables.symbols
        self._program = ModuleProgram(layers, embedding)
        for number, layer in enumerate(layers):
            self._layer(layer, number)
        self._program.close(norm, [output])

    def can_step(self, position: int | Tensor) -> bool:
        """Whether the kernel supports this position, or those of all rows ``[N]``, and nothing
        requires the modules: watchers, tracing or gradients."""
        if not can_step(self._like):
            return False
        last = position if isinstance(position, int) else int(position.max())
        return last < self._program.program.longest and not self._program.watched

    def step(
        self, tokens: Tensor, caches: LayerCaches, sources: SourceMemories | None = None
    ) -> Tensor:
        """Logits ``[N, V]`` after ``tokens [N]``; the step is added to ``caches``.

        Args:
            tokens: one per row, on the CPU.
            caches: the caches of these layers.
            sources: the memories of the sources, if the layers attend to them.

        Raises:
            IndexError: a token is not in the table.
        """
        rows, tokens, position = tokens.shape[0], tokens.long().contiguous(), caches.position
        steps = torch.empty(2 * self._layers, rows, 1, *self._step_shape).unbind(0)
        own = caches.take(list(zip(steps[::2], steps[1::2], strict=True)))
        memories: list[Memory | None] = [None] * (2 * self._layers)
        for number, memory in enumerate(own):
            memories[2 * number] = Memory(memory.in_c(), *steps[2 * number : 2 * number + 2])
        for number, values in enumerate([] if sources is None else sources.in_c()):
            memories[2 * number + 1] = Memory(values)
        return self._program.program.run(tokens, memories, None, position)

    def _layer(self, layer: Block, number: int) -> None:
        own = self_attention_of(layer)
        if (own.key_heads, own.head_dim) != self._step_shape:
            raise NotFusedError
        program = self._program
        program.sublayer(
            layer.around_self,
            lambda start: program.attend(APPEND, own, start, 2 * number),
        )
        if isinstance(layer, DecoderLayer):
            cross = layer.cross_attention
            program.sublayer(
                layer.around_cross,
                lambda start: program.attend(READ_CACHE, cross, start, 2 * number + 1),
            )
        program.feed_forward(layer)


_cache: FusedCache[FusedDecoder] = FusedCache()


def fused_decoder(
    model: nn.Module,
    layers: Sequence[Block],
    norm: nn.Module,
    embedding: Embedding,
    table: Tensor,
    bias: Tensor | None,
    projection: nn.Module | None = None,
) -> FusedDecoder | None:
    """The fused form of a model's decoder, if it can currently replace its modules.

    See :class:`heedful.inference.fusing.cached.FusedCache`. It supports softmax attention over dot
    products and linear maps in float32, bfloat16 or int8.

    Args:
        model: the model.
        layers: its blocks, first to last.
        norm: the norm after the last block.
        embedding: the embedding before the first block.
        table: the output matrix ``[V, D]``.
        bias: of the logits ``[V]``.
        projection: computes the logits instead of the table.
    """
    others, parts = [table, *([] if bias is None else [bias])], [*layers, norm, *embedding.modules]
    output = Map(table, bias) if projection is None else projection
    if projection is not None:
        others, parts = [], [*parts, projection]
    others += [embedding.tables.symbols, embedding.tables.positions]
    return _cache.of(model, parts, others, lambda: FusedDecoder(layers, norm, embedding, output))
