"""Softmax: α_i = exp(e_i / τ) / Σ_j exp(e_j / τ), with temperature τ.

Bahdanau, Cho, Bengio 2015, section 3.1, equation 6; with a temperature Hinton, Vinyals, Dean 2015,
"Distilling the Knowledge in a Neural Network", section 2, equation 1.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.preparing import filled, widened


def masked_softmax(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension of ``scores [.., Q, K]``, over the allowed keys.

    A row that allows no key is all zeros, with zero gradients.

    Example:
        >>> masked_softmax(torch.zeros(2, 2), torch.tensor([[True, False], [False, False]]))
        tensor([[1., 0.],
                [0., 0.]])
    """
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    return torch.softmax(filled(scores, allowed), dim=-1).masked_fill(~allowed, 0.0)


class Softmax(Normalizer):
    """Softmax over the keys; a query that may attend to nothing gets zeros.

    Args:
        temperature: divides the scores, above 0; large is flat, small is sharp.

    Raises:
        ValueError: the temperature is not above 0.

    Example:
        >>> Softmax()(torch.zeros(1, 4))
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        name: Literal["softmax"] = "softmax"
        temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
        """Divides the scores."""

        def build(self, heads: int, query_dim: int) -> "Softmax":
            return Softmax(self.temperature)

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, not {temperature}")
        self.temperature = temperature

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        if self.temperature == 1.0:
            return masked_softmax(scores, allowed)
        return masked_softmax(widened(scores) / self.temperature, allowed).to(scores.dtype)

    def softmax_scale(self) -> float:
        return 1.0 / self.temperature
