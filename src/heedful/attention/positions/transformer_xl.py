"""Transformer-XL's relative positions.

    e_ij = ((q_i + u)ᵀ k_j + (q_i + v)ᵀ W_(k,R) R_(i−j)) / √d

R_(i−j) is the sinusoid of the distance, [sin ((i−j) ω); cos ((i−j) ω)], and u and v are learned.
Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context",
section 3.3 and appendix B.

The second term needs no shift of a matrix of distances. With [a; b] = W_(k,R)ᵀ (q_i + v), and the
sine and cosine of a difference,

    aᵀ sin((i−j) ω) + bᵀ cos((i−j) ω)
        = (a sin iω + b cos iω)ᵀ cos jω + (b sin iω − a cos iω)ᵀ sin jω

which is a dot product of a vector for each query with a vector for each key.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.positions.base import (
    RelativePositions,
    check_heads,
    check_positions,
    sum_type,
)
from heedful.attention.positions.rotary import rotary_angles
from heedful.attention.positions.settings import HeadSizes, PositionSettings
from heedful.attention.scores import Dot, ScaledDot, Score
from heedful.basics.limits import MOST_WIDTH


class TransformerXL(RelativePositions):
    """A learned map of the sinusoids of distances, and learned biases of the queries.

    Parameters: ``content_bias`` (u) and ``position_bias`` (v), ``[heads, dim]`` and initially zero;
    ``projection`` (W_(k,R)), ``[heads, dim, position_dim]``.

    Args:
        dim: width d of a head.
        heads: number of heads H.
        position_dim: width of the sinusoids, even; default ``heads · dim``, as in the paper.

    Raises:
        ValueError: a number is below 1, or ``position_dim`` is odd; with a score that is no dot
            product of the queries and keys themselves; at the call, if the number of heads or of
            positions does not match the queries.

    Source: Dai et al. 2019, section 3.3.

    Example:
        >>> xl = TransformerXL(8, heads=2)
        >>> xl.bias(torch.zeros(2, 3, 8), keys=5, positions=torch.arange(3), scale=1.0).shape
        torch.Size([2, 3, 5])
    """

    class Settings(PositionSettings):
        """The table of a recipe."""

        relative: ClassVar[bool] = True
        name: Literal["transformer-xl"] = "transformer-xl"
        position_size: int | None = Field(None, ge=2, le=MOST_WIDTH, multiple_of=2)
        """Width of the sinusoids; that of all heads by default."""

        def build_relative(self, sizes: HeadSizes) -> "TransformerXL":
            return TransformerXL(sizes.width, sizes.heads, self.position_size)

    def __init__(self, dim: int, heads: int, position_dim: int | None = None) -> None:
        super().__init__()
        position_dim = heads * dim if position_dim is None else position_dim
        if dim < 1 or heads < 1:
            raise ValueError(f"dim {dim} and heads {heads} must be at least 1")
        if position_dim < 2 or position_dim % 2:
            raise ValueError(f"position_dim must be even and at least 2, not {position_dim}")
        self.heads, self.dim, self.position_dim = heads, dim, position_dim
        self.content_bias = nn.Parameter(torch.zeros(heads, dim))
        self.position_bias = nn.Parameter(torch.zeros(heads, dim))
        self.projection = nn.Parameter(torch.empty(heads, dim, position_dim))
        nn.init.normal_(self.projection, std=position_dim**-0.5)

    def check_score(self, score: Score) -> None:
        if not isinstance(score, Dot | ScaledDot):
            raise ValueError(  # noqa: TRY004
                "Transformer-XL's positions are part of a dot product of queries and keys: use the "
                f"score Dot or ScaledDot, not {type(score).__name__}"
            )

    def turn_query(self, query: Tensor, positions: Tensor) -> Tensor:
        """``q + u``, ``[.., H, Q, d]``."""
        check_heads(self.heads, query, positions)
        return query + self._of_heads(self.content_bias).to(query.dtype)

    def bias(self, query: Tensor, keys: int, positions: Tensor, scale: float) -> Tensor:
        """``scale · (q_i + v)ᵀ W_(k,R) R_(i−j)``, ``[.., H, Q, K]``.

        Args:
            query: ``q + u``, ``[.., H, Q, d]``.
            keys: number of keys K.
            positions: of the queries, integers ``[.., Q]``.
            scale: factor on the dot product.
        """
        check_heads(self.heads, query, positions)
        check_positions(positions)
        kind = sum_type(query.dtype)
        more = self._of_heads(self.position_bias - self.content_bias).to(kind)
        projection = self.projection if self.heads > 1 else self.projection[0]
        a, b = ((query.to(kind) + more) @ projection.to(kind)).chunk(2, dim=-1)  # [.., Q, P / 2]
        sin, cos = self._waves(positions, kind)
        key_sin, key_cos = self._waves(torch.arange(keys, device=positions.device), kind)
        by_query = torch.cat([a * sin + b * cos, b * sin - a * cos], -1)  # [.., H, Q, P]
        by_key = torch.cat([key_cos, key_sin], -1)  # [K, P]
        return (by_query @ by_key.T * scale).to(query.dtype)

    def _of_heads(self, bias: Tensor) -> Tensor:
        return bias.unsqueeze(-2) if self.heads > 1 else bias

    def _waves(self, positions: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        angles = rotary_angles(positions, self.position_dim)
        return angles.sin().to(kind), angles.cos().to(kind)

    def extra_repr(self) -> str:
        return f"{self.dim}, heads={self.heads}, position_dim={self.position_dim}"
