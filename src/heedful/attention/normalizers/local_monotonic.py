"""Local-m: a softmax over the keys within ±D of the query's own position, p_t = t.

Luong, Pham, Manning 2015, "Effective Approaches to Attention-based Neural Machine Translation",
section 3.2: monotonic alignment, weights by equation 7 over the window [p_t − D, p_t + D].
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.preparing import check_scores, required
from heedful.attention.normalizers.softmax import masked_softmax
from heedful.basics.limits import MOST_POSITIONS


def local_monotonic(
    scores: Tensor, positions: Tensor, window: int, allowed: Tensor | None = None
) -> Tensor:
    """Softmax of ``scores [.., Q, K]`` over the allowed keys within ``window`` of the query.

    Args:
        scores: ``[.., Q, K]``; key ``j`` is at position ``j``, masked or not.
        positions: the position of each query, counted like those of the keys: ``[Q]``.
        window: D, the largest distance of a key, on either side.
        allowed: boolean, broadcastable to the scores; true = may attend. A row that allows no key
            in its window (a query far beyond the last key) is all zeros, with zero gradients.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> local_monotonic(torch.zeros(2, 4), torch.tensor([0, 2]), window=1)
        tensor([[0.5000, 0.5000, 0.0000, 0.0000],
                [0.0000, 0.3333, 0.3333, 0.3333]])
    """
    check_scores(scores, allowed)
    keys = torch.arange(scores.shape[-1], device=scores.device)
    near = (keys - positions.unsqueeze(-1)).abs() <= window  # [Q, K]
    return masked_softmax(scores, near if allowed is None else near & allowed)


class LocalMonotonic(Normalizer):
    """:func:`local_monotonic` as a normalizer, for monotonic alignments.

    Args:
        window: D, at least 0: how far from the query's position a key may be.

    Raises:
        ValueError: the window is negative; at the call, ``queries`` is None.

    Example:
        >>> queries = Queries(vectors=torch.zeros(1, 5), positions=torch.tensor([3]))
        >>> LocalMonotonic(window=1)(torch.zeros(1, 4), queries=queries)
        tensor([[0.0000, 0.0000, 0.5000, 0.5000]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        not_for_heads: ClassVar[str] = "needs the position of each query"
        reads_past: ClassVar[bool] = True
        name: Literal["local-monotonic"] = "local-monotonic"
        window: int = Field(10, ge=0, le=MOST_POSITIONS)
        """D, positions on either side of the query's own."""

        def build(self, heads: int, query_dim: int) -> "LocalMonotonic":
            return LocalMonotonic(self.window)

    def __init__(self, window: int) -> None:
        super().__init__()
        if window < 0:
            raise ValueError(f"window must be at least 0, not {window}")
        self.window = window

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        queries = required(queries, scores, "LocalMonotonic", "positions")
        return local_monotonic(scores, queries.positions, self.window, allowed)

    def extra_repr(self) -> str:
        return f"window={self.window}"
