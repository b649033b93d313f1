"""How a recurrent decoder reads its source: one query a row, by all rows of a source at once.

In C where it can be; the plain form beside it takes whatever mechanism there is.
Shapes: A sources, N rows, K rows a source at most, S positions, H the query's width, E a value's.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.attention import Attention, Memory, masks
from heedful.basics.addresses import operable, readable
from heedful.kernels import source_attention as reading
from heedful.kernels.choosing import compiled_wanted
from heedful.models.recurrent_rows import SourceRows


def keys_and_values(
    attention: Attention, annotations: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Projected keys, values and which may be read ``[A, 1, S]``, of ``annotations [A, S, ..]``."""
    count, positions, _ = annotations.shape
    allowed = masks.padding(lengths).dense((count, 1, positions), annotations.device)
    return (*attention.remember(annotations), allowed)


class KnownReading(NamedTuple):
    """What C must know of a mechanism."""

    vector: Tensor | None
    """v of an additive score; None for a dot product."""
    scale: float
    """Of the scores."""


def known_reading(attention: Attention, *parts: Tensor) -> KnownReading | None:
    """What C must know to read in the mechanism's place; None where it cannot.

    It can on the CPU in float32, softmax over an additive score or a dot product, where nobody
    watches and there is a compiler.

    Args:
        attention: the mechanism.
        parts: queries and what is read, ``[.., width]``; the first as wide as a dot product's.
    """
    now = attention.mechanism
    vector, softmax_scale = now.tanh_vector(), now.softmax_scale()
    scale = now.fused_scale(parts[0].shape[-1]) if vector is None else softmax_scale
    if scale is None or now.positions is not None or (attention.training and attention.dropout):
        return None
    read = parts if vector is None else (*parts, vector)
    if any(part.dtype != torch.float32 for part in read) or not operable(*read):
        return None
    if torch.is_autocast_enabled("cpu"):
        return None
    if attention.watched or attention.watched_in_part or not compiled_wanted():
        return None
    return None if reading.library() is None else KnownReading(vector, scale)


def read_rows(
    attention: Attention, query: Tensor, rows: SourceRows, memory: tuple[Tensor, ...]
) -> Tensor:
    """Contexts ``[N, E]`` of one query a row, ``query [N, H]``, over what is known of sources.

    Args:
        attention: the mechanism.
        query: before its projection.
        rows: which source each row reads.
        memory: what :func:`keys_and_values` gave, the values perhaps gone through linear maps.
    """
    key, value, allowed = memory
    known = None
    if not torch.is_grad_enabled() and readable(query, key, value):
        known = known_reading(attention, query, key, value)
    if known is not None:
        contexts = query.new_empty(len(query), value.shape[2])
        sources = reading.Sources(key, value, allowed, rows.sources, *known)
        sources.read(attention.score.project_query(query).contiguous(), contexts)
        return contexts
    if attention.watched or attention.watched_in_part:
        # Who watches sees a matrix a row.
        key, value, allowed = (rows.copied(part) for part in memory)
        return attention.read(query.unsqueeze(1), Memory(key, value), allowed).squeeze(1)
    contexts = attention.read(rows.spread(query), Memory(key, value), allowed)
    return rows.collect(contexts)
