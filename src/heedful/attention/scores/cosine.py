"""Cosine: e(q, k) = β · qᵀk / (|q| |k|), content addressing with sharpening β.

Graves, Wayne, Danihelka 2014, "Neural Turing Machines", section 3.3.1, equations 5 (β, the "key
strength") and 6 (the cosine).
"""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.scores.base import Score, ScoreSettings, equal_width, require_same_width


def directions(vectors: Tensor) -> Tensor:
    """``vectors [.., D]`` normalized to length one; a zero vector stays zero, with zero gradient.

    A vector counts as zero if all its components are below the type's smallest normal number: it
    has too few digits for a direction, and the derivative, which grows as 1 / length, overflows.
    """
    wide = vectors.float() if vectors.dtype in (torch.bfloat16, torch.float16) else vectors
    # Divide by the largest component first, so that squares neither overflow nor underflow. The
    # result does not depend on this factor, so it needs no gradient.
    largest = wide.detach().abs().amax(-1, keepdim=True)
    zero = largest < torch.finfo(wide.dtype).tiny
    scaled = wide / largest.masked_fill(zero, 1.0)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    unit: Tensor = scaled / length.masked_fill(zero, 1.0)
    return unit.masked_fill(zero, 0.0).to(vectors.dtype)


class Cosine(Score):
    """Cosine of the angle between query and key, times a sharpening β.

    A zero query or key has cosine 0 with everything, and gradients of zero.

    Args:
        sharpening: β, above 0; the inverse of a softmax's temperature.
        learned: whether β is a parameter with this initial value; it is stored as
            ``log_sharpening``, so that it stays above 0.

    Raises:
        ValueError: the sharpening is not above 0 or not finite; at the call, query and key differ
            in width.

    Example:
        >>> import torch
        >>> memory = torch.tensor([[5.0, 0.0], [0.0, 0.0]])
        >>> Cosine(sharpening=2.0)(torch.tensor([[3.0, 0.0]]), memory)
        tensor([[2., 0.]])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["cosine"] = "cosine"
        sharpening: float = Field(1.0, gt=0, allow_inf_nan=False)
        """β."""
        learned: bool = False
        """Whether β is trained."""

        def build(self, query_dim: int, key_dim: int) -> "Cosine":
            equal_width(self.name, query_dim, key_dim)
            return Cosine(self.sharpening, self.learned)

    log_sharpening: nn.Parameter | None

    def __init__(self, sharpening: float = 1.0, learned: bool = False) -> None:
        super().__init__()
        if not 0 < sharpening < math.inf:
            raise ValueError(f"sharpening must be above 0 and finite, not {sharpening}")
        self.initial_sharpening = sharpening
        start = nn.Parameter(torch.tensor(math.log(sharpening))) if learned else None
        self.register_parameter("log_sharpening", start)

    @property
    def sharpening(self) -> Tensor | float:
        """The current β."""
        return self.initial_sharpening if self.log_sharpening is None else self.log_sharpening.exp()

    def project_query(self, query: Tensor) -> Tensor:
        return (directions(query) * self.sharpening).to(query.dtype)

    def project_key(self, key: Tensor) -> Tensor:
        return directions(key)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        require_same_width(query, key)
        return query @ key.transpose(-2, -1)

    def dot_scale(self, width: int) -> float:
        return 1.0
