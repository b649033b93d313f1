"""Attention of a recurrent decoder: one query per row, for all rows of a source at once.

A kernel computes the mechanisms that it supports.
Shapes: A sources, N rows, at most K rows per source, S positions, H width of the query, E of a
value.
"""

from functools import partial
from typing import NamedTuple

from torch import Tensor

from heedful.attention import Attention, Memory, MultiHeadAttention, RecurrentAttention, masks
from heedful.kernels.source_attention import attend_to_sources
from heedful.models.recurrent_rows import SourceRows


def keys_and_values(
    attention: Attention | MultiHeadAttention | RecurrentAttention,
    annotations: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Projected keys, values and the mask ``[A, 1, S]`` of ``annotations [A, S, ..]``."""
    count, positions, _ = annotations.shape
    allowed = masks.padding(lengths).dense((count, 1, positions), annotations.device)
    return (*attention.remember(annotations), allowed)


class KnownReading(NamedTuple):
    """The parameters of a mechanism that a kernel needs."""

    vector: Tensor | None
    """v of an additive score; None for a dot product."""
    scale: float
    """Factor on the scores."""


def known_reading(attention: Attention | MultiHeadAttention, width: int) -> KnownReading | None:
    """The parameters with which a kernel computes the mechanism; None if it cannot.

    It can for softmax over an additive score or a dot product of width ``width``, if the module is
    not watched.
    """
    now = attention.mechanism
    vector, softmax_scale = now.tanh_vector(), now.softmax_scale()
    scale = now.fused_scale(width) if vector is None else softmax_scale
    if scale is None or now.positions is not None or (attention.training and attention.dropout):
        return None
    if attention.watched or attention.watched_in_part or type(attention) is not Attention:
        return None
    return KnownReading(vector, scale)


def read_rows(
    attention: Attention | MultiHeadAttention,
    query: Tensor,
    rows: SourceRows,
    memory: tuple[Tensor, ...],
) -> Tensor:
    """Contexts ``[N, E]`` of one query per row, ``query [N, H]``, over the sources.

    Args:
        attention: the mechanism.
        query: before its projection.
        rows: the source of each row.
        memory: the result of :func:`keys_and_values`; the values may be mapped linearly.
    """
    key, value, allowed = memory
    known = known_reading(attention, query.shape[-1])
    if known is not None and isinstance(attention, Attention):
        projected_query = partial(attention.score.project_query, query)
        contexts = attend_to_sources(projected_query, key, value, allowed, rows.sources, *known)
        if contexts is not None:
            return contexts
    if attention.watched or attention.watched_in_part:
        # Watchers get a matrix for each row.
        key, value, allowed = (rows.copied(part) for part in memory)
        return attention.read(query.unsqueeze(1), Memory(key, value), allowed).squeeze(1)
    contexts = attention.read(rows.spread(query), Memory(key, value), allowed)
    return rows.collect(contexts)
