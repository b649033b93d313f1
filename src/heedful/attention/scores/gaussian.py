"""Gaussian: e(q, k) = −‖q − k‖² / (2σ²).

With a softmax this is the kernel regression of Nadaraya 1964, "On Estimating Regression", and
Watson 1964, "Smooth Regression Analysis": the mean of the values, weighted by a Gaussian of how far
their keys are from the query.
"""

import math
from typing import Literal

from pydantic import Field
from torch import Tensor

from heedful.attention.scores.base import Score, ScoreSettings, equal_width, require_same_width
from heedful.kernels.distances import squared_distances


class Gaussian(Score):
    """Squared distance between query and key as a score: the nearer, the higher; at most 0.

    Args:
        width: σ, above 0, in the queries' unit: keys further away than a few widths have almost no
            weight compared with a near one.

    Raises:
        ValueError: the width is not above 0 or not finite; at the call, query and key differ in
            their width.

    Example:
        >>> import torch
        >>> Gaussian(width=2.0)(torch.zeros(1, 2), torch.tensor([[0.0, 2.0], [0.0, 4.0]]))
        tensor([[-0.5000, -2.0000]])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["gaussian"] = "gaussian"
        width: float = Field(1.0, gt=0, allow_inf_nan=False)
        """σ."""

        def build(self, query_dim: int, key_dim: int) -> "Gaussian":
            equal_width(self.name, query_dim, key_dim)
            return Gaussian(self.width)

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        if not 0 < width < math.inf:
            raise ValueError(f"width must be above 0 and finite, not {width}")
        self.width = width

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        require_same_width(query, key)
        return squared_distances(query, key) * (-0.5 / self.width**2)
