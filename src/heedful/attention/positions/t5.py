"""Buckets of offsets: e_ij = q_i k_jᵀ + b_h(bucket(j − i)), one number for each head and bucket.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", section 2.1: small offsets have a bucket each, larger ones share buckets that widen
logarithmically up to ``max_distance``, and all beyond share the last. With n buckets per direction
and e = ⌊n/2⌋, the bucket of a distance d is

    d                                                for d < e
    min(n − 1, e + ⌊(n − e) · ln(d/e) / ln(max_distance/e)⌋)   otherwise

The start of each bucket is computed once, in integers, so that the bucket of a distance does not
depend on how a device rounds logarithms.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.positions.base import (
    RelativePositions,
    check_heads,
    check_positions,
    offsets,
    sum_type,
)
from heedful.attention.positions.settings import HeadSizes, PositionSettings
from heedful.basics.addresses import readable
from heedful.basics.constants import WithConstants
from heedful.basics.limits import MOST_POSITIONS


def bucket_starts(buckets: int, max_distance: int) -> list[int]:
    """The smallest distance in each bucket of one direction, except bucket 0, which starts at 0.

    Example:
        >>> bucket_starts(8, max_distance=32)
        [1, 2, 3, 4, 7, 12, 20]
    """
    exact = buckets // 2
    starts, distance = list(range(1, exact)), exact
    wide = buckets - exact
    for step in range(wide):
        # wide · ln(d/e) / ln(m/e) ≥ step, without logarithms
        while distance**wide * exact**step < max_distance**step * exact**wide:
            distance += 1
        starts.append(distance)
    return starts


class T5Buckets(WithConstants, RelativePositions):
    """A learned number for each head and bucket of offsets, added to the scores.

    T5 itself adds it to the dot product without a scale. ``table.weight`` is ``[buckets, heads]``
    and initially zero.

    Args:
        heads: number of heads H.
        buckets: number of buckets; if bidirectional, the upper half is for keys after the query.
        max_distance: all keys at this distance or more share a bucket.
        bidirectional: whether keys after the query have their own buckets; otherwise all of them
            share the bucket of distance 0.

    Raises:
        ValueError: ``heads`` is below 1, there are fewer than 2 buckets per direction, two
            directions cannot share them evenly, or ``max_distance`` is within the buckets of
            single distances.

    Source: Raffel et al. 2020, section 2.1.

    Example:
        >>> t5 = T5Buckets(heads=2)
        >>> t5.bias(torch.zeros(2, 3, 8), keys=5, positions=torch.arange(3), scale=1.0).shape
        torch.Size([2, 3, 5])
    """

    class Settings(PositionSettings):
        """The table of a recipe."""

        relative: ClassVar[bool] = True
        name: Literal["t5"] = "t5"
        buckets: int = Field(32, ge=2, le=MOST_POSITIONS)
        """Number of distances that have a bias of their own; two directions share them."""
        max_distance: int = Field(128, ge=2, le=MOST_POSITIONS)
        """All longer distances are one bucket."""

        def build_relative(self, sizes: HeadSizes) -> "T5Buckets":
            return T5Buckets(
                sizes.heads, self.buckets, self.max_distance, bidirectional=not sizes.causal
            )

    starts: Tensor

    def __init__(
        self, heads: int, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.bidirectional, self.max_distance = heads, bidirectional, max_distance
        if heads < 1:
            raise ValueError(f"heads must be at least 1, not {heads}")
        if bidirectional and buckets % 2:
            raise ValueError(f"buckets {buckets} must be even, because two directions share them")
        self.one_way = buckets // 2 if bidirectional else buckets
        if self.one_way < 2:
            raise ValueError(f"buckets {buckets} are too few: each direction needs at least 2")
        if max_distance <= self.one_way // 2:
            raise ValueError(
                f"max_distance {max_distance} must be above {self.one_way // 2}: with buckets "
                f"{buckets}, smaller distances have a bucket each"
            )
        self.table = nn.Embedding(buckets, heads)
        nn.init.zeros_(self.table.weight)
        self.register_constants()

    def constants(self) -> dict[str, Tensor]:
        return {"starts": torch.tensor(bucket_starts(self.one_way, self.max_distance))}

    def bucket(self, offsets: Tensor) -> Tensor:
        """The bucket of each offset ``j − i``, integers of any shape.

        Example:
            >>> T5Buckets(1).bucket(torch.tensor([-200, -3, 0, 3, 200])).tolist()
            [15, 3, 0, 19, 31]
        """
        if not self.bidirectional:
            return torch.bucketize((-offsets).clamp(min=0), self.starts, right=True)
        near = torch.bucketize(offsets.abs(), self.starts, right=True)
        return near + (offsets > 0) * self.one_way

    def bias(self, query: Tensor, keys: int, positions: Tensor, scale: float) -> Tensor:
        """``[H, Q, K]`` for ``query [.., H, Q, D]`` at integer ``positions [Q]``; ``[B, H, Q, K]``
        for positions of each row, ``[B, 1, Q]``.

        Raises:
            ValueError: the number of heads, or the number of positions, does not match the queries.
        """
        check_heads(self.heads, query, positions)
        check_positions(positions)
        # The gradient is a sum over all scores, which half precision cannot represent.
        table = self.table.weight.to(sum_type(self.table.weight.dtype))
        if _are_consecutive(positions):
            bias = self._of_diagonals(table, keys, positions).to(query.dtype)
            return bias.squeeze(0) if self.heads == 1 else bias
        buckets = self.bucket(offsets(positions, keys))
        bias = F.embedding(buckets, table).to(query.dtype)  # [.., Q, K, H]
        if self.heads == 1:
            return bias.squeeze(-1)
        bias = bias.movedim(-1, -3)
        return bias if positions.dim() == 1 else bias.squeeze(-4)

    def _of_diagonals(self, table: Tensor, keys: int, positions: Tensor) -> Tensor:
        """The bias ``[H, Q, K]`` of consecutive positions: each diagonal has one offset.

        The gradient of the table is then a sum over Q + K − 1 offsets, not over Q · K scores.
        """
        whole = torch.arange(-int(positions[-1]), keys - int(positions[0]))
        values = F.embedding(self.bucket(whole), table).T  # [H, Q + K − 1]
        return values.unfold(-1, keys, 1).flip(-2)

    def extra_repr(self) -> str:
        return f"max_distance={self.max_distance}, bidirectional={self.bidirectional}"


def _are_consecutive(positions: Tensor) -> bool:
    """Whether these are several positions of all rows, one after another, on the CPU."""
    if positions.dim() != 1 or len(positions) < 2 or not readable(positions):
        return False
    return bool((positions.diff() == 1).all())
