"""The most similar vectors.

Shapes: M queries, N vectors, D width.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from heedful.tasks.embedding.predictor import Vectors

_BLOCK = 256


class Found(NamedTuple):
    """A vector that was found."""

    place: int
    """Its index, from 0."""
    cosine: float
    """Cosine with the query, from −1 to 1."""


def nearest(
    queries: Vectors, vectors: Vectors, count: int, *, first: int | None = None
) -> Iterator[list[Found]]:
    """For each query, the ``count`` vectors with the largest cosine, the largest first.

    Vectors of zeros, which are those of empty texts, are neither queries nor found. Of equal
    cosines, the earlier vector comes first.

    Args:
        queries: ``[M, D]``.
        vectors: ``[N, D]``.
        count: maximum number to find.
        first: the place of the first query among the vectors, if the queries are some of them; a
            query is not found by itself.

    Example:
        >>> plane = np.array([[1, 0], [0, 1], [3, 1]], np.float32)
        >>> [[one.place for one in own] for own in nearest(plane, plane, 1, first=0)]
        [[2], [2], [0]]
    """
    directions, filled = _directions(vectors)
    for start in range(0, len(queries), _BLOCK):
        block, known = _directions(queries[start : start + _BLOCK])
        cosines = np.where(filled, block @ directions.T, -np.inf)
        if first is not None:
            rows = np.arange(len(block))
            cosines[rows, first + start + rows] = -np.inf
        for row, is_known in zip(cosines, known, strict=True):
            order = np.argsort(-row, kind="stable")[:count] if is_known else np.array([], np.int64)
            yield [
                Found(int(place), float(row[place])) for place in order if np.isfinite(row[place])
            ]


def _directions(vectors: Vectors) -> tuple[Vectors, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The vectors at length 1, and which are not zero."""
    lengths = np.linalg.norm(vectors, axis=1)
    return vectors / np.maximum(lengths, 1e-12)[:, None], lengths > 0
