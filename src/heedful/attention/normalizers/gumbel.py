"""Gumbel straight-through: one-hot forwards, the gradient of a softmax backwards.

With g_i standard Gumbel noise: y = softmax((e + g) / τ), α = one_hot(argmax y), and ∂α := ∂y.
Jang, Gu, Poole 2017, "Categorical Reparameterization with Gumbel-Softmax", section 2.2;
Maddison, Mnih, Teh 2017, "The Concrete Distribution".
"""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.hard import chosen_key, one_hot
from heedful.attention.normalizers.preparing import check_scores, widened
from heedful.attention.normalizers.sampled_hard import gumbel_noise
from heedful.attention.normalizers.softmax import masked_softmax


def straight_through(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """One-hot at the highest of ``scores [.., Q, K]``, with the gradient of their softmax.

    Args:
        scores: ``[.., Q, K]``, after noise and temperature.
        allowed: boolean, broadcastable to the scores; true = may attend. A row that allows no key
            is all zeros, with zero gradients.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` does not broadcast to the scores.

    Example:
        >>> import torch
        >>> straight_through(torch.tensor([[1.0, 3.0]], requires_grad=True))
        tensor([[0., 1.]], grad_fn=<AddBackward0>)
    """
    check_scores(scores, allowed)
    soft = masked_softmax(widened(scores), allowed)
    exact = one_hot(soft.detach(), chosen_key(scores, allowed))
    # In this order the sum is exactly 0 or 1, because the rounding of 1 − y cancels.
    return (soft + (exact - soft.detach())).to(scores.dtype)


class GumbelStraightThrough(Normalizer):
    """Samples one key for each row in training, and takes the highest score in evaluation.

    Keys are sampled from the softmax of the scores, for any temperature. The temperature affects
    only the gradient: a low one has little bias and a high variance, a high one the opposite. The
    gradient flows through the weights, so there is no log-probability.

    Args:
        temperature: τ, above 0. The attribute may be lowered during training.

    Raises:
        ValueError: the temperature is not above 0.

    Example:
        >>> import torch
        >>> GumbelStraightThrough(temperature=0.5).eval()(torch.tensor([[0.1, 0.3]]))
        tensor([[0., 1.]])
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        not_for_heads: ClassVar[str] = "draws weights at random; use model.kind = 'recurrent'"
        name: Literal["gumbel"] = "gumbel"
        temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
        """Of the softmax whose gradient is used."""

        def build(self, heads: int, query_dim: int) -> "GumbelStraightThrough":
            return GumbelStraightThrough(self.temperature)

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, not {temperature}")
        self.temperature = temperature

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        check_scores(scores, allowed)
        wide = widened(scores)
        if self.draws:
            wide = wide + gumbel_noise(scores)
        return straight_through(wide / self.temperature, allowed).to(scores.dtype)

    @property
    def draws(self) -> bool:
        return self.training

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"
