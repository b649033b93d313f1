"""Quadratic relative positions: each head attends to the neighbourhood of one shift in a grid.

    −α (‖δ‖² − 2 Δ · δ)  =  −α ‖δ − Δ‖² + α ‖Δ‖²        equation 9

δ is the key's place minus the query's, in rows and columns; the centre Δ and the sharpness α are
learned for each head. A softmax of this score is a Gaussian around the shift Δ; as α grows, K²
heads become a K × K convolution (Theorem 1).

Cordonnier, Loukas, Jaggi 2020, "On the Relationship between Self-Attention and Convolutional
Layers", section 3.1 and 4.2. The constant α ‖Δ‖², which a softmax ignores, is left out here: the
bias is −α ‖δ − Δ‖², at most 0.
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.places import check_shape, coordinates
from heedful.attention.positions.base import (
    RelativePositions,
    check_heads,
    check_positions,
    sum_type,
)
from heedful.attention.positions.settings import HeadSizes, PositionSettings
from heedful.attention.scores import Score
from heedful.basics.limits import MOST_POSITIONS


class Quadratic(RelativePositions):
    """A bias −α ‖δ − Δ‖² for keys that lie δ from the query in a grid, row by row.

    Parameters: ``centres [H, A]``, drawn from N(0, 2) (section 4.2); ``sharpness [H]``, α,
    initially 1.

    Args:
        heads: number of heads H.
        shape: sizes of the grid's A axes, such as (rows, columns).
        content: whether queries and keys are compared as well; if not, the weights depend on the
            positions only, as in the paper's "quadratic encoding".

    Raises:
        ValueError: there is no head, or a size is below 1.

    Source: Cordonnier et al. 2020, equation 9.

    Example:
        >>> own = Quadratic(1, shape=(2, 2))
        >>> _ = own.centres.data.zero_()
        >>> own.bias(torch.zeros(1, 4), 4, torch.tensor([3]), 1.0).tolist()  # place (1, 1)
        [[-2.0, -1.0, -1.0, -0.0]]
    """

    class Settings(PositionSettings):
        """The table of a recipe."""

        relative: ClassVar[bool] = True
        name: Literal["quadratic"] = "quadratic"
        shape: tuple[Annotated[int, Field(ge=1, le=MOST_POSITIONS)], ...] = (16, 16)
        """Sizes of the grid's axes, such as rows and columns."""
        content: bool = True
        """Whether queries and keys are compared as well."""

        def build_relative(self, sizes: HeadSizes) -> "Quadratic":
            return Quadratic(sizes.heads, self.shape, content=self.content)

    def __init__(self, heads: int, shape: tuple[int, ...], *, content: bool = True) -> None:
        super().__init__()
        if heads < 1:
            raise ValueError(f"heads must be at least 1, not {heads}")
        check_shape(shape)
        self.heads, self.shape, self.content = heads, tuple(shape), content
        self.centres = nn.Parameter(torch.randn(heads, len(shape)) * 2**0.5)
        self.sharpness = nn.Parameter(torch.ones(heads))

    def check_score(self, score: Score) -> None:
        """Check that a score without content is 0.

        Raises:
            ValueError: it is not a dot product.
        """
        if not self.content and score.dot_scale(1) is None:
            raise ValueError(
                "quadratic positions with content = false need a score that is a dot product, "
                "such as 'scaled-dot'"
            )

    def turn_query(self, query: Tensor, positions: Tensor) -> Tensor:
        return query if self.content else torch.zeros_like(query)

    def bias(self, query: Tensor, keys: int, positions: Tensor, scale: float) -> Tensor:
        """``[H, Q, K]`` for ``query [.., H, Q, D]`` at integer ``positions [Q]``; ``[B, H, Q, K]``
        for positions of each row, ``[B, 1, Q]``.

        Raises:
            ValueError: the number of heads, or the number of positions, does not match the queries.
        """
        check_heads(self.heads, query, positions)
        check_positions(positions)
        kind = sum_type(query.dtype)
        every = torch.arange(keys, device=positions.device)
        here = torch.stack(coordinates(positions, self.shape), -1).to(kind)  # [.., Q, A]
        there = torch.stack(coordinates(every, self.shape), -1).to(kind)  # [K, A]
        delta = there - here.unsqueeze(-2)  # [.., Q, K, A]
        centres = self.centres.to(kind).unsqueeze(-2).unsqueeze(-2)  # [H, 1, 1, A]
        distances = (delta - centres).square().sum(-1)  # [.., H, Q, K]
        bias = (-self.sharpness.to(kind)[:, None, None] * distances).to(query.dtype)
        return bias.squeeze(0) if self.heads == 1 and positions.dim() == 1 else bias

    def extra_repr(self) -> str:
        return f"{self.heads}, shape={self.shape}, content={self.content}"
