"""An encoder in one call: whole sequences, without padding.

Shapes: B sequences, M tokens of all of them, D width of the model, G heads of keys and values.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from heedful.attention import MultiHeadAttention
from heedful.attention.scores import Dot, ScaledDot
from heedful.inference.fusing.cached import FusedCache
from heedful.inference.fusing.program import Embedding, ModuleProgram, self_attention_of
from heedful.kernels.cached_attention import PackedSteps
from heedful.kernels.program import SELF_ATTEND, NotFusedError
from heedful.layers.source_memories import SourceMemories
from heedful.layers.transformer import EncoderLayer

LONGEST = 512
"""Tokens of a sequence; longer ones are left to the modules, which attend by blocks of rows."""


class FusedEncoder:
    """The layers of an encoder, its final norm, and the decoder's key and value projections.

    Built by :func:`fused_encoder`.
    """

    def __init__(
        self,
        layers: Sequence[EncoderLayer],
        norm: nn.Module,
        embedding: Embedding,
        readers: Sequence[MultiHeadAttention],
    ) -> None:
        program = self._program = ModuleProgram(layers, embedding)
        for layer in layers:
            self._layer(layer)
        program.close(norm, [part for reader in readers for part in _remembering(reader)])
        self._readers = [(reader.key_heads, reader.head_dim) for reader in readers]

    def _layer(self, layer: EncoderLayer) -> None:
        program, attention = self._program, self_attention_of(layer)
        program.sublayer(
            layer.around_self, lambda start: program.attend(SELF_ATTEND, attention, start)
        )
        program.feed_forward(layer)

    def can_read(self, longest: int) -> bool:
        """Whether it supports sequences of this length, and no attention is watched."""
        return longest <= min(LONGEST, self._program.program.longest) and not self._program.watched

    def read(self, padded: Tensor, lengths: Tensor) -> SourceMemories:
        """The memories of all readers, one row of search per sequence.

        Args:
            padded: tokens ``[B, S]``, on the CPU.
            lengths: integers ``[B]``, at least 1.

        Raises:
            IndexError: a token is not in the table.
        """
        there = torch.arange(padded.shape[1]) < lengths.unsqueeze(1)
        tokens, ends = padded[there].long(), torch.zeros(len(lengths) + 1, dtype=torch.long)
        torch.cumsum(lengths, 0, out=ends[1:])
        output = self._program.program.run(tokens, [], ends, 0)
        steps, first = [], 0
        for groups, width in self._readers:
            key, value = (
                output[:, start : start + groups * width].view(-1, groups, width)
                for start in (first, first + groups * width)
            )
            steps.append(PackedSteps(key, value, padded.shape[1]))
            first += 2 * groups * width
        return SourceMemories.packed(steps, ends[:-1], lengths)


def _remembering(reader: MultiHeadAttention) -> list[nn.Module]:
    """The projections of keys and values, if :meth:`remember` does nothing else."""
    parts = reader.mechanism
    if type(parts.score) not in (Dot, ScaledDot) or parts.positions is not None:
        raise NotFusedError
    if reader.value_projection is None or not reader.projects_only:
        raise NotFusedError
    return [reader.key_projection, reader.value_projection]


_cache: FusedCache[FusedEncoder] = FusedCache()


def fused_encoder(
    model: nn.Module,
    layers: Sequence[EncoderLayer],
    norm: nn.Module,
    embedding: Embedding,
    readers: Sequence[MultiHeadAttention],
) -> FusedEncoder | None:
    """The fused form of a model's encoder, if it can currently replace its modules.

    See :class:`heedful.inference.fusing.cached.FusedCache`. It supports softmax attention over dot
    products and linear maps in float32, bfloat16 or int8.

    Args:
        model: the model.
        layers: its blocks, first to last.
        norm: the norm after the last block.
        embedding: the embedding before the first block.
        readers: the attention modules that read the encoder's output.
    """
    parts = [*layers, norm, *readers, *embedding.modules]
    others = [embedding.tables.symbols, embedding.tables.positions]
    return _cache.of(model, parts, others, lambda: FusedEncoder(layers, norm, embedding, readers))
