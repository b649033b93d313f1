"""The contrastive loss of vectors: InfoNCE (van den Oord et al. 2018) with in-batch negatives.

Shapes: B rows, C candidates (B or 2B), D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def comparable(texts: Tensor, first: int = 0, end: int | None = None) -> Tensor:
    """Which candidates the anchors are compared with: ``[rows, C]``, true for the own positive.

    A candidate is compared with anchor i only if it can be told apart from i's positive. Left out
    are the anchor's own text, other copies of its positive, and the positives of other rows with
    the same anchor.

    Args:
        texts: ``[2, B]`` numbers of the anchors and of their positives, or ``[3, B]`` with further
            negatives; equal texts have equal numbers. The candidates are the positives, then the
            negatives.
        first: the first anchor.
        end: the anchor after the last; default: all.

    Example:
        >>> comparable(torch.tensor([[1, 1, 2], [3, 4, 3]])).int()
        tensor([[1, 0, 0],
                [0, 1, 1],
                [0, 1, 1]], dtype=torch.int32)
    """
    count = texts.shape[1]
    anchors = texts[0, first:end, None]
    candidates = texts[1:].reshape(1, -1)
    allowed = (candidates != anchors) & (candidates != texts[1, first:end, None])
    allowed[:, :count] &= texts[0] != anchors
    rows = torch.arange(len(anchors), device=texts.device)
    allowed[rows, first + rows] = True
    return allowed


def contrastive_losses(
    anchors: Tensor, candidates: Tensor, allowed: Tensor, temperature: float, first: int = 0
) -> Tensor:
    """The loss of each anchor ``[B]``, in nats.

    It is ``−log(exp(cos(a_i, c_i) / τ) / Σ_j exp(cos(a_i, c_j) / τ))``. This is
    equation 1 of Gao et al. 2021 (SimCSE), and equation 5 with hard negatives. The sum is over the
    allowed candidates.

    Args:
        anchors: vectors ``[B, D]`` of any length.
        candidates: ``[C, D]``; the positive of anchor i is candidate ``first + i``.
        allowed: ``[B, C]`` from :func:`comparable`.
        temperature: τ > 0.
        first: the candidate of the first anchor.
    """
    cosines = F.normalize(anchors, dim=-1) @ F.normalize(candidates, dim=-1).mT
    scores = (cosines / temperature).masked_fill(~allowed, float("-inf"))
    own = torch.arange(first, first + len(anchors), device=anchors.device)
    return F.cross_entropy(scores, own, reduction="none")
