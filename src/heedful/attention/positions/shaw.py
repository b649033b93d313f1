"""Clipped relative vectors, for keys and for values.

    e_ij = x_i W^Q (x_j W^K + a^K_ij)ᵀ / √d                equation 4
    z_i  = Σ_j α_ij (x_j W^V + a^V_ij)                     equation 3
    a_ij = w_clip(j − i, k),  clip(x, k) = max(−k, min(k, x))

Shaw, Uszkoreit, Vaswani 2018, "Self-Attention with Relative Position Representations", sections 3.1
and 3.2. The offset is the key's position minus the query's: row 0 of a table is for keys k or more
positions before the query, row k for the query's own position, row 2k for k or more positions after
it. The tables are shared by all heads, as in section 3.3.

Neither sum needs a tensor ``[Q, K, D]``: the dot products of the query with all 2k + 1 rows are
gathered by offset (equation 5), and the weights are summed by offset and multiplied by the table.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.overrides import describes
from heedful.attention.positions.base import RelativePositions, check_rows, offsets, sum_type
from heedful.attention.positions.settings import HeadSizes, PositionSettings
from heedful.attention.scores.base import Score, require_width
from heedful.basics.limits import MOST_POSITIONS


def clipped(positions: Tensor, keys: int, clip: int) -> Tensor:
    """The table's row for each query and key, ``clip + max(−clip, min(clip, j − i)) [Q, K]``.

    Example:
        >>> clipped(torch.tensor([3]), keys=5, clip=1).tolist()
        [[0, 0, 0, 1, 2]]
    """
    return offsets(positions, keys).clamp(-clip, clip) + clip


def key_bias(query: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """``q_i · a_ij [.., Q, K]`` for ``query [.., Q, D]``, ``table [R, D]`` and ``rows [Q, K]``."""
    fits = query @ table.to(query.dtype).T  # [.., Q, R]
    # The gradient is a sum over all keys, which half precision cannot represent.
    picked = fits.to(sum_type(fits.dtype)).gather(-1, rows.expand(*fits.shape[:-1], -1))
    return picked.to(fits.dtype)


def value_context(weights: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """``Σ_j α_ij a_ij [.., Q, D]`` for ``weights [.., Q, K]``, ``table`` and ``rows [Q, K]``."""
    kind = sum_type(weights.dtype)
    empty = weights.new_zeros((*weights.shape[:-1], len(table)), dtype=kind)
    shares = empty.scatter_add(-1, rows.expand(weights.shape), weights.to(kind))  # [.., Q, R]
    return shares.to(weights.dtype) @ table.to(weights.dtype)


class Shaw(RelativePositions):
    """A learned vector for each offset up to ``clip``, added to the keys and to the values.

    Parameters: ``key_table [2·clip + 1, dim]`` and, with ``values``, ``value_table`` with as many
    rows. Any score can be used: a dot product at the cost above, any other by its definition, on
    ``k_j + a_ij``, which needs a tensor ``[.., Q, K, dim]``.

    Args:
        dim: width of the projected keys.
        clip: the largest distance that has its own vector, at least 0.
        values: whether the values have vectors as well.
        value_dim: width of the values; ``dim`` by default.

    Raises:
        ValueError: a width is not positive, or ``clip`` is negative.

    Source: Shaw et al. 2018, sections 3.1 to 3.3, equations 3 to 5.

    Example:
        >>> from heedful.attention.scores import ScaledDot
        >>> keys = torch.zeros(2, 5, 4)  # the queries are the last three
        >>> Shaw(4, clip=2).compare(ScaledDot(), keys[:, 2:], keys, torch.arange(2, 5)).shape
        torch.Size([2, 3, 5])
    """

    class Settings(PositionSettings):
        """The table of a recipe."""

        relative: ClassVar[bool] = True
        name: Literal["shaw"] = "shaw"
        clip: int = Field(16, ge=0, le=MOST_POSITIONS)
        """k, the longest distance that has vectors of its own."""
        values: bool = True
        """Whether values have vectors as well as keys."""

        def build_relative(self, sizes: HeadSizes) -> "Shaw":
            width, values = sizes.compared or sizes.width, sizes.values or sizes.width
            return Shaw(width, self.clip, self.values, value_dim=values)

    def __init__(
        self, dim: int, clip: int, values: bool = True, *, value_dim: int | None = None
    ) -> None:
        super().__init__()
        value_dim = dim if value_dim is None else value_dim
        if dim < 1 or value_dim < 1:
            raise ValueError(f"dim {dim} and value_dim {value_dim} must be at least 1")
        if clip < 0:
            raise ValueError(f"clip must be at least 0, not {clip}")
        self.dim, self.clip = dim, clip
        self.key_table = nn.Parameter(torch.empty(2 * clip + 1, dim))
        nn.init.normal_(self.key_table, std=dim**-0.5)
        self.value_table: nn.Parameter | None = None
        if values:
            self.value_table = nn.Parameter(torch.empty(2 * clip + 1, value_dim))
            nn.init.normal_(self.value_table, std=value_dim**-0.5)

    @property
    def changes_values(self) -> bool:  # type: ignore[override]
        return self.value_table is not None

    def bias(self, query: Tensor, keys: int, positions: Tensor, scale: float) -> Tensor:
        """``scale · q_i · a^K_ij [.., Q, K]``, for scores that are dot products (equation 5)."""
        require_width("query", query, self.dim)
        check_rows(query, positions)
        return scale * key_bias(query, self.key_table, clipped(positions, keys, self.clip))

    def compare(self, score: Score, query: Tensor, key: Tensor, positions: Tensor) -> Tensor:
        """The score of each query with ``k_j + a^K_ij``, ``[.., Q, K]`` (equation 4).

        Args:
            score: any.
            query: projected, ``[.., Q, D]``.
            key: projected, ``[.., K, dim]``.
            positions: of the queries, integers ``[Q]``.

        Raises:
            ValueError: the keys are not ``dim`` wide, or the positions do not match the queries.
        """
        require_width("key", key, self.dim)
        check_rows(query, positions)
        dot = describes(score, "dot_scale", "compare")
        if dot and score.dot_scale(query.shape[-1]) is not None:
            return super().compare(score, query, key, positions)
        vectors = self.key_table[clipped(positions, key.shape[-2], self.clip)]  # [Q, K, D]
        moved = key.unsqueeze(-3) + vectors.to(key.dtype)  # [.., Q, K, D]
        return score.compare(query.unsqueeze(-2), moved).squeeze(-2)

    def context(self, weights: Tensor, positions: Tensor) -> Tensor | None:
        """``Σ_j α_ij a^V_ij [.., Q, value_dim]``, or None without vectors for values."""
        if self.value_table is None:
            return None
        check_rows(weights, positions)
        rows = clipped(positions, weights.shape[-1], self.clip)
        return value_context(weights, self.value_table, rows)

    def extra_repr(self) -> str:
        return f"{self.dim}, clip={self.clip}, values={self.changes_values}"
