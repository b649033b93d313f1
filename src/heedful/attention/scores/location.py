"""Location: e(q, k_i) = (W_a q)_i, which depends on the query only.

Luong, Pham, Manning 2015, section 3.1, equation 9 ("location"). Row i of W_a scores the key at
position i, independently of its vector; a short input uses the first rows.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.scores.base import Score, ScoreSettings, require_width
from heedful.basics.limits import MOST_POSITIONS
from heedful.basics.shapes import leading_sizes


class Location(Score):
    """One row of ``weight [positions, query_dim]`` per position; only the number of keys matters.

    Args:
        query_dim: width of the queries.
        positions: the largest number of keys.

    Raises:
        ValueError: ``positions`` or ``query_dim`` is below 1; at the call, a query has another
            width or there are more keys than positions.

    Example:
        >>> import torch
        >>> Location(3, positions=10)(torch.zeros(2, 3), torch.zeros(4, 5)).shape
        torch.Size([2, 4])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        reads_keys: ClassVar[bool] = False
        name: Literal["location"] = "location"
        positions: int = Field(512, ge=1, le=MOST_POSITIONS)
        """The largest number of keys, at least the model's ``max_length``."""

        def build(self, query_dim: int, key_dim: int) -> "Location":
            return Location(query_dim, self.positions)

        def longest(self) -> int:
            return self.positions

    def __init__(self, query_dim: int, positions: int) -> None:
        super().__init__()
        if query_dim < 1 or positions < 1:
            raise ValueError(
                f"query_dim and positions must be at least 1, not {query_dim} and {positions}"
            )
        self.query_dim, self.positions = query_dim, positions
        self.weight = nn.Parameter(torch.empty(positions, query_dim))
        nn.init.xavier_uniform_(self.weight)

    def project_query(self, query: Tensor) -> Tensor:
        require_width("query", query, self.query_dim)
        return query

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        keys = key.shape[-2]
        if keys > self.positions:
            raise ValueError(
                f"key has shape {list(key.shape)}: {keys} keys, but Location was built for at most "
                f"positions={self.positions}"
            )
        # Compute only the needed rows of W_a q: most inputs are shorter than the longest.
        scores = F.linear(query, self.weight[:keys].to(query.dtype))
        leading = leading_sizes(query, key)
        return scores.expand(*leading, *scores.shape[-2:])
