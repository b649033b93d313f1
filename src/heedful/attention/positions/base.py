"""The base class of positions that act within the attention.

Sinusoidal and learned positions are added to the inputs and do not use it.
Shapes: B batch, H heads, Q queries, K keys, D width. Keys are at positions 0, 1, …, K − 1.
Positions of queries are ``[Q]``, or ``[B, 1, Q]`` for those of each row (``[B, Q]`` without heads).
"""

import torch
from torch import Tensor, nn

from heedful.attention.scores import Score


class RelativePositions(nn.Module):
    """Positions that rotate queries and keys, or change the scores or the values.

    A subclass overrides what it changes; by default no method changes anything.

    Example:
        >>> class Decay(RelativePositions):
        ...     def bias(self, query, keys, positions, scale):
        ...         return -offsets(positions, keys).abs().to(query.dtype)
        >>> Decay().bias(torch.zeros(1, 4), 3, torch.tensor([2]), 1.0)
        tensor([[-2., -1., -0.]])
    """

    changes_values: bool = False
    """Whether :meth:`context` adds to the context, which requires the weights."""

    @property
    def biases(self) -> bool:
        """Whether :meth:`bias` or :meth:`compare` may change the scores."""
        base, own = RelativePositions, type(self)
        return own.bias is not base.bias or own.compare is not base.compare

    def check_score(self, score: Score) -> None:
        """Check that these positions have a meaning with a score; all do by default.

        Raises:
            ValueError: they have none.
        """

    def turn(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """Rotate queries or keys ``[.., L, D]`` at integer ``positions [L]``, before the score's
        projections."""
        return vectors

    def turn_query(self, query: Tensor, positions: Tensor) -> Tensor:
        """:meth:`turn` for queries, if queries and keys are changed differently."""
        return self.turn(query, positions)

    def turn_key(self, key: Tensor, positions: Tensor) -> Tensor:
        """:meth:`turn` for keys."""
        return self.turn(key, positions)

    def bias(self, query: Tensor, keys: int, positions: Tensor, scale: float) -> Tensor | None:
        """The bias that is added to the scores, broadcastable to ``[.., Q, K]``; None for none.

        Args:
            query: projected queries ``[.., Q, D]``; for their number, type and device, and for
                biases that depend on their values.
            keys: number of keys K.
            positions: of the queries, integers ``[Q]``.
            scale: factor on the dot product that the bias is added to.
        """
        return None

    def compare(self, score: Score, query: Tensor, key: Tensor, positions: Tensor) -> Tensor:
        """Scores ``[.., Q, K]`` of projected queries and keys, with the bias."""
        scores = score.compare(query, key)
        scale = score.dot_scale(query.shape[-1])
        bias = self.bias(query, key.shape[-2], positions, 1.0 if scale is None else scale)
        return scores if bias is None else scores + bias

    def context(self, weights: Tensor, positions: Tensor) -> Tensor | None:
        """The tensor ``[.., Q, dv]`` that is added to the context; None for none.

        Args:
            weights: the weights of the values (after dropout), ``[.., Q, K]``.
            positions: of the queries, integers ``[Q]``.
        """
        return None


def offsets(positions: Tensor, keys: int) -> Tensor:
    """The offset of each key from each query, ``j − i [.., Q, K]``; negative for earlier keys.

    Args:
        positions: the positions i of the queries, integers ``[.., Q]``.
        keys: number of keys K; key j is at position j.

    Raises:
        TypeError: the positions are not integers.
        ValueError: they have no dimension.

    Example:
        >>> offsets(torch.tensor([2, 0]), keys=3).tolist()
        [[-2, -1, 0], [0, 1, 2]]
    """
    check_positions(positions)
    if positions.dim() < 1:
        raise ValueError(f"positions {list(positions.shape)}: expected [Q], one for each query")
    return torch.arange(keys, device=positions.device) - positions.unsqueeze(-1)


def check_positions(positions: Tensor) -> None:
    """Raise TypeError unless ``positions`` are integers."""
    kind = positions.dtype
    if kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise TypeError(f"positions must be integers, not {kind}")


def check_heads(heads: int, query: Tensor, positions: Tensor) -> None:
    """Raise ValueError unless ``query [.., H, Q, D]`` matches the heads and the positions."""
    if heads > 1 and (query.dim() < 3 or query.shape[-3] != heads):
        raise ValueError(
            f"query has shape {list(query.shape)}: expected [.., {heads}, Q, D], "
            f"these positions are for {heads} heads"
        )
    check_rows(query, positions)


def check_rows(rows: Tensor, positions: Tensor) -> None:
    """Raise ValueError unless there is one position for each row of ``rows [.., Q, D]``."""
    if positions.dim() < 1 or positions.shape[-1] != rows.shape[-2]:
        raise ValueError(
            f"positions {list(positions.shape)} do not match {list(rows.shape)}: "
            f"expected {rows.shape[-2]} of them, one for each row"
        )


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The dtype for sums of many ``dtype`` values: float32 for half precision."""
    return torch.promote_types(dtype, torch.float32)
