"""Scores of retrieval by similar vectors.

Shapes: N queries, C candidates, D width.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.layers.contrastive import comparable

RECALLS = (1, 5, 10)
_BLOCK = 1024


def ranks(queries: Tensor, candidates: Tensor, texts: Tensor) -> list[int]:
    """The rank, from 1, of each query's right candidate by cosine.

    Candidates with an equal cosine count as ranked before it, so that vectors that are all equal
    get the worst rank, not the best.

    Args:
        queries: ``[N, D]``.
        candidates: ``[C, D]``; the right one of query i is candidate i.
        texts: ``[2 or 3, N]`` numbers of the texts, from which
            :func:`~heedful.layers.contrastive.comparable` finds the candidates of each query.

    Example:
        >>> ranks(torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.1]]), torch.arange(4).view(2, 2))
        [1, 1]
    """
    directions, found = F.normalize(candidates, dim=-1), []
    for first in range(0, len(queries), _BLOCK):
        block = F.normalize(queries[first : first + _BLOCK], dim=-1)
        cosines = block @ directions.mT
        rows = torch.arange(len(block))
        own = cosines[rows, first + rows, None]
        allowed = comparable(texts, first, first + _BLOCK)
        found += ((cosines >= own) & allowed).sum(1).tolist()
    return found


def retrieval_figures(found: Sequence[int]) -> dict[str, float]:
    """Recall at 1, 5 and 10, and the mean reciprocal rank, each from 0 to 1.

    Example:
        >>> retrieval_figures([1, 2])
        {'recall_at_1': 0.5, 'recall_at_5': 1.0, 'recall_at_10': 1.0, 'mean_reciprocal_rank': 0.75}
    """
    count = len(found)
    recalls = {f"recall_at_{k}": sum(rank <= k for rank in found) / count for k in RECALLS}
    return {**recalls, "mean_reciprocal_rank": sum(1 / rank for rank in found) / count}
