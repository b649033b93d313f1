"""How a recurrent decoder reads its source: one query a row, by all rows of a source at once.

A kernel stands in for the mechanisms that it knows.
Shapes: A sources, N rows, K rows a source at most, S positions, H the query's width, E a value's.
"""

from functools import partial
from typing import NamedTuple

from torch import Tensor

from heedful.attention import Attention, Memory, masks
from heedful.kernels.source_attention import attend_to_sources
from heedful.models.recurrent_rows import SourceRows


def keys_and_values(
    attention: Attention, annotations: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Projected keys, values and which may be read ``[A, 1, S]``, of ``annotations [A, S, ..]``."""
    count, positions, _ = annotations.shape
    allowed = masks.padding(lengths).dense((count, 1, positions), annotations.device)
    return (*attention.remember(annotations), allowed)


class KnownReading(NamedTuple):
    """What a kernel must know of a mechanism."""

    vector: Tensor | None
    """v of an additive score; None for a dot product."""
    scale: float
    """Of the scores."""


def known_reading(attention: Attention, width: int) -> KnownReading | None:
    """What a kernel must know to read in the mechanism's place; None where it cannot stand in.

    It can for softmax over an additive score or a dot product of ``width`` numbers, where nobody
    watches.
    """
    now = attention.mechanism
    vector, softmax_scale = now.tanh_vector(), now.softmax_scale()
    scale = now.fused_scale(width) if vector is None else softmax_scale
    if scale is None or now.positions is not None or (attention.training and attention.dropout):
        return None
    if attention.watched or attention.watched_in_part:
        return None
    return KnownReading(vector, scale)


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
    known = known_reading(attention, query.shape[-1])
    if known is not None:
        asked = partial(attention.score.project_query, query)
        contexts = attend_to_sources(asked, key, value, allowed, rows.sources, *known)
        if contexts is not None:
            return contexts
    if attention.watched or attention.watched_in_part:
        # Who watches sees a matrix a row.
        key, value, allowed = (rows.copied(part) for part in memory)
        return attention.read(query.unsqueeze(1), Memory(key, value), allowed).squeeze(1)
    contexts = attention.read(rows.spread(query), Memory(key, value), allowed)
    return rows.collect(contexts)
