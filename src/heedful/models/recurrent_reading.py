"""How a recurrent decoder reads its source: one query a row, by all rows of a source at once.

Shapes: A sources, N rows, K rows a source at most, S positions, H the query's width, E a value's.
"""

from torch import Tensor

from heedful.attention import Attention, Memory, masks
from heedful.models.recurrent_rows import SourceRows


def keys_and_values(
    attention: Attention, annotations: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Projected keys, values and which may be read ``[A, 1, S]``, of ``annotations [A, S, ..]``."""
    count, positions, _ = annotations.shape
    allowed = masks.padding(lengths).dense((count, 1, positions), annotations.device)
    return (*attention.remember(annotations), allowed)


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
    if attention.watched or attention.watched_in_part:
        # Who watches sees a matrix a row.
        key, value, allowed = (rows.copied(part) for part in memory)
        return attention.read(query.unsqueeze(1), Memory(key, value), allowed).squeeze(1)
    contexts = attention.read(rows.spread(query), Memory(key, value), allowed)
    return rows.collect(contexts)
