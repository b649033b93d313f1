"""Exponential of the dot product: p(q, k) = exp(qᵀk), to be normalized by a plain sum.

Luong, Pham, Manning 2015, section 3.1, equation 7, with the "dot" of equation 8: a softmax of dot
products split into an exponential and a sum, α_i = p_i / Σ_j p_j.
"""

from typing import ClassVar, Literal

from torch import Tensor

from heedful.attention.scores.base import Score, ScoreSettings, equal_width, require_same_width


class ExpDot(Score):
    """``exp(q·k)``: above 0, so that a plain sum can normalize it.

    With a plain sum it has the weights of :class:`Dot` with a softmax. Prefer the latter, which is
    faster and safer: a softmax subtracts the largest score first, whereas ``exp(q·k)`` overflows if
    ``q·k`` is above 88 in float32 and bfloat16, 11 in float16, 709 in float64. This includes
    masked keys: their exponential is computed before the mask, and gradients are NaN.

    Raises:
        ValueError: at the call, query and key differ in width.

    Example:
        >>> import torch
        >>> ExpDot()(torch.tensor([[1.0, 2.0]]), torch.zeros(3, 2))
        tensor([[1., 1., 1.]])
    """

    class Settings(ScoreSettings):
        """The table of a recipe."""

        name: Literal["exp-dot"] = "exp-dot"
        least: ClassVar[float | None] = 0.0

        def build(self, query_dim: int, key_dim: int) -> "ExpDot":
            equal_width(self.name, query_dim, key_dim)
            return ExpDot()

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        require_same_width(query, key)
        return (query @ key.transpose(-2, -1)).exp()
