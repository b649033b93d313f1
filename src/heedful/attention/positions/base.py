"""What positions that enter the attention itself have in common.

Sinusoidal and learned positions are added to the inputs and need none of this.
Shapes: B batch, H heads, Q queries, K keys, D width. Keys stand at 0, 1, …, K − 1.
"""

import torch
from torch import Tensor, nn

from heedful.attention.scores import Score


class RelativePositions(nn.Module):
    """Positions that turn queries and keys, or change the scores or the values.

    A new one overrides what it changes; each method changes nothing unless overridden.

    Example:
        >>> class Decay(RelativePositions):
        ...     def bias(self, query, keys, positions, scale):
        ...         return -offsets(positions, keys).abs().to(query.dtype)
        >>> Decay().bias(torch.zeros(1, 4), 3, torch.tensor([2]), 1.0)
        tensor([[-2., -1., -0.]])
    """

    changes_values: bool = False
    """Whether :meth:`context` adds something, so that the weights themselves are needed."""

    @property
    def biases(self) -> bool:
        """Whether something may be added to scores, or they are compared in another way."""
        base, own = RelativePositions, type(self)
        return own.bias is not base.bias or own.compare is not base.compare

    def turn(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys ``[.., L, D]`` at integer ``positions [L]``, before the score's own
        projections (rotary positions)."""
        return vectors

    def bias(self, query: Tensor, keys: int, positions: Tensor, scale: float) -> Tensor | None:
        """What is added to the scores, broadcastable to ``[.., Q, K]``; None for nothing.

        Args:
            query: projected queries ``[.., Q, D]``; here for their number, type and device, and for
                biases that depend on what they hold.
            keys: number of keys K.
            positions: of the queries, integers ``[Q]``.
            scale: of the dot product that the bias is added to.
        """
        return None

    def compare(self, score: Score, query: Tensor, key: Tensor, positions: Tensor) -> Tensor:
        """Scores ``[.., Q, K]`` of projected queries and keys: the score's own and the bias."""
        scores = score.compare(query, key)
        scale = score.dot_scale(query.shape[-1])
        bias = self.bias(query, key.shape[-2], positions, 1.0 if scale is None else scale)
        return scores if bias is None else scores + bias

    def context(self, weights: Tensor, positions: Tensor) -> Tensor | None:
        """What is added to the context, ``[.., Q, dv]``; None for nothing.

        Args:
            weights: those that sum the values (after dropout), ``[.., Q, K]``.
            positions: of the queries, integers ``[Q]``.
        """
        return None


def offsets(positions: Tensor, keys: int) -> Tensor:
    """How far each key lies after each query, ``j − i [Q, K]``; negative for the past.

    Args:
        positions: where the queries i stand, integers ``[Q]``.
        keys: their number K; key j stands at j.

    Raises:
        TypeError: the positions are not integers.
        ValueError: they are not ``[Q]``.

    Example:
        >>> offsets(torch.tensor([2, 0]), keys=3).tolist()
        [[-2, -1, 0], [0, 1, 2]]
    """
    check_positions(positions)
    if positions.dim() != 1:
        raise ValueError(f"positions {list(positions.shape)}: expected [Q], one for each query")
    return torch.arange(keys, device=positions.device) - positions.unsqueeze(-1)


def check_positions(positions: Tensor) -> None:
    """Raise TypeError unless ``positions`` are integers."""
    kind = positions.dtype
    if kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise TypeError(f"positions must be integers, not {kind}")


def check_heads(heads: int, query: Tensor, positions: Tensor) -> None:
    """Raise ValueError unless ``query [.., Q, D]`` has the heads and ``positions`` its rows."""
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
            f"positions {list(positions.shape)} do not fit {list(rows.shape)}: "
            f"expected {rows.shape[-2]} of them, one for each row"
        )


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which many numbers of ``dtype`` are summed: float32 for the half types."""
    return torch.promote_types(dtype, torch.float32)
