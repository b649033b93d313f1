"""α-entmax: p = [(α − 1)·z − τ]₊^{1/(α−1)}, with τ such that Σp = 1. α = 1 is softmax, 2 sparsemax.

Peters, Niculae, Martins 2019, "Sparse Sequence-to-Sequence Models", section 3 and algorithm 1
(bisection); Correia, Niculae, Martins 2019, "Adaptively Sparse Transformers", section 3 (the
gradient to α).

With ε = α − 1 and y = z − (τ + 1)/ε this is computed as log p = log(1 + ε·y)/ε, which converges to
the softmax's log p = y without loss of precision as ε goes to 0.
"""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention.normalizers.base import Normalizer, NormalizerSettings, Queries
from heedful.attention.normalizers.entmax15 import entmax15
from heedful.attention.normalizers.preparing import below_largest, check_scores, finished, widened
from heedful.attention.normalizers.softmax import masked_softmax
from heedful.attention.normalizers.sparsemax import sparsemax
from heedful.basics.addresses import forward_mode
from heedful.basics.constants import WithConstants


def entmax_bisect(
    scores: Tensor, alpha: float | Tensor = 1.5, allowed: Tensor | None = None
) -> Tensor:
    """α-entmax over the last dimension of ``scores [.., Q, K]``, over the allowed keys.

    Computed by bisection, to the precision of the scores' type, with exact gradients for scores and
    ``alpha`` (also at α = 1). A row that allows no key is all zeros, with zero gradients. For α
    above 2, weights are not smooth where a key enters the support, and the gradient there is large.

    Args:
        scores: ``[.., Q, K]``.
        alpha: at least 1: a number, or a tensor that broadcasts to ``[.., Q, 1]``, such as
            ``[H, 1, 1]`` for one per head. The values of a tensor are not checked; values below 1
            count as 1.
        allowed: boolean, broadcastable to the scores; true = may attend.

    Raises:
        TypeError: scores are not of floating point, or ``allowed`` is not boolean.
        ValueError: ``allowed`` or ``alpha`` does not broadcast to the scores, or ``alpha`` is a
            number below 1 or not finite.

    Example:
        >>> entmax_bisect(torch.tensor([1.0, 0.5, -1.0]), alpha=2.0)
        tensor([0.7500, 0.2500, 0.0000])
    """
    check_scores(scores, allowed)
    if isinstance(alpha, Tensor):
        _check_rows(alpha, scores)
    else:
        check_alpha(alpha)
    if not scores.shape[-1]:
        return scores
    z = below_largest(scores, allowed)
    epsilon = alpha - 1.0
    if not isinstance(epsilon, Tensor):
        epsilon = torch.full((), epsilon, dtype=z.dtype, device=z.device)
    weights = _entmax(z, epsilon.to(z.dtype).expand(*z.shape[:-1], 1))
    return finished(weights, scores, allowed)


def _check_rows(alpha: Tensor, scores: Tensor) -> None:
    rows = [*scores.shape[:-1], 1]
    pairs = zip(reversed(alpha.shape), reversed(rows), strict=False)
    if alpha.dim() > len(rows) or any(size not in (1, whole) for size, whole in pairs):
        raise ValueError(
            f"alpha {list(alpha.shape)} does not broadcast to {rows}, one for each row"
        )


def check_alpha(alpha: float) -> None:
    """Raise ValueError unless ``alpha`` is a finite number, 1 or above."""
    if not 1.0 <= alpha < math.inf:
        raise ValueError(f"alpha must be at least 1 (softmax) and finite, not {alpha}")


_LEAST = 1e-30
"""Replaces ε = 0 in divisions; so small that log(1 + ε·y)/ε equals y within rounding."""


class _Entmax(torch.autograd.Function):
    """Weights for scores ``z [.., K]``, the largest of them 0, and ``epsilon [.., 1]``.

    A separate autograd function, because the gradient should not flow through the bisection: it
    follows from Σp = 1 by implicit differentiation and needs only the weights.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, epsilon: Tensor) -> Tensor:
        epsilon = epsilon.clamp(min=_LEAST)
        # The weight of the largest score, 0, is between 1/K and 1, which brackets its root.
        logarithm = torch.full_like(epsilon, z.shape[-1]).log()
        width = -torch.expm1(-epsilon * logarithm) / epsilon
        low = torch.zeros_like(width)
        for _ in range(56 if z.dtype == torch.float64 else 28):
            width = width / 2
            enough = _power(z - (low + width), epsilon).sum(-1, keepdim=True) >= 1
            low = torch.where(enough, low + width, low)
        weights = _power(z - low, epsilon)
        return weights / weights.sum(-1, keepdim=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output, inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        slopes, to_epsilon = _slopes(*ctx.saved_tensors)
        mean = (slopes * gradient).sum(-1, keepdim=True) / slopes.sum(-1, keepdim=True)
        rest = gradient - mean  # The gradient after the change of τ.
        return slopes * rest, (to_epsilon * rest).sum(-1, keepdim=True)


class _EntmaxForward(_Entmax):
    """With forward-mode gradients, which ``torch.compile`` cannot trace in autograd functions."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        _Entmax.setup_context(ctx, inputs, output)
        ctx.save_for_forward(output, inputs[1])

    @staticmethod
    def jvp(ctx: Any, z: Tensor | None, epsilon: Tensor | None) -> Tensor:
        slopes, to_epsilon = _slopes(*ctx.saved_tensors)
        moved = torch.zeros_like(slopes)
        if z is not None:
            moved = moved + slopes * z
        if epsilon is not None:
            moved = moved + to_epsilon * epsilon
        return moved - slopes * (moved.sum(-1, keepdim=True) / slopes.sum(-1, keepdim=True))


def _entmax(z: Tensor, epsilon: Tensor) -> Tensor:
    function = _EntmaxForward if forward_mode(z, epsilon) else _Entmax
    weights: Tensor = function.apply(z, epsilon)  # type: ignore[no-untyped-call]
    return weights


def _power(y: Tensor, epsilon: Tensor) -> Tensor:
    """``[1 + ε·y]₊^{1/ε}``, which equals ``exp(y)`` up to rounding if ε is close to 0."""
    inside = (epsilon * y).clamp(min=-1.0)  # At −1 the logarithm is −∞, and the power 0.
    return (torch.log1p(inside) / epsilon).exp()


def _slopes(weights: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """``∂p/∂y = p^{1−ε}`` and ``∂p/∂ε`` of the weights, for constant τ."""
    epsilon = epsilon.clamp(min=0.0)
    support = weights > 0
    logs = torch.where(support, weights, 1.0).log()
    slopes = torch.where(support, ((1.0 - epsilon) * logs).exp(), 0.0)
    return slopes, _slopes_to_epsilon(weights, logs, slopes, epsilon)


def _slopes_to_epsilon(weights: Tensor, logs: Tensor, slopes: Tensor, epsilon: Tensor) -> Tensor:
    """``∂p/∂ε`` for constant τ: ``p·(1 − t − e^{−t})/ε²`` for t = ε·log p, which is at most 0.

    Near t = 0 this cancels numerically; the series ``−p·(log p)²·(1/2! − t/3! + t²/4! − …)`` is
    used there.
    """
    t = epsilon * logs
    near = t > -0.5
    small = torch.where(near, t, 0.0)
    series = torch.zeros_like(t)
    for k in range(15, 1, -1):
        series = 1.0 / math.factorial(k) - small * series
    far_epsilon = torch.where(near, 1.0, epsilon)
    far = (weights * (1.0 - t) - slopes) / far_epsilon.square()
    return torch.where(near, -weights * logs.square() * series, far)


class Entmax(WithConstants, Normalizer):
    """α-entmax as a normalizer, with α given or learned.

    Learned, α is 1 + softplus(``raw_alpha``), so that it stays above 1.

    Args:
        alpha: 1 (softmax) or above; 2 is sparsemax. A tensor that broadcasts to ``[.., Q, 1]``
            holds several, such as ``torch.full((heads, 1, 1), 1.5)`` for one per head.
        learned: whether ``alpha`` is the initial value of a parameter; then it must be above 1.

    Raises:
        ValueError: ``alpha`` is below 1, not finite, or 1 although it is learned; or it is a tensor
            on the meta device and not learned.

    Example:
        >>> Entmax(alpha=1.5)(torch.tensor([[3.0, 3.0, 0.0]]))
        tensor([[0.5000, 0.5000, 0.0000]])
        >>> Entmax(alpha=1.5, learned=True).alpha
        tensor(1.5000, grad_fn=<AddBackward0>)
    """

    class Settings(NormalizerSettings):
        """The table of a recipe."""

        name: Literal["entmax"] = "entmax"
        alpha: float = Field(1.5, ge=1, allow_inf_nan=False)
        """α; 1 is softmax, 2 sparsemax."""
        learned: bool = True
        """Whether each head learns its α, which begins with ``alpha``."""

        @model_validator(mode="after")
        def _learnable(self) -> "Entmax.Settings":
            if self.learned and self.alpha <= 1:
                raise ValueError(f"a learned alpha must begin above 1, not at {self.alpha}")
            return self

        def build(self, heads: int, query_dim: int) -> "Entmax":
            return Entmax(torch.full((heads, 1, 1), self.alpha), learned=self.learned)

    given_alpha: Tensor

    def __init__(self, alpha: float | Tensor = 1.5, learned: bool = False) -> None:
        super().__init__()
        if isinstance(alpha, Tensor):
            several, start = True, alpha.detach().clone()
        else:
            several, start = False, torch.tensor(float(alpha), device="cpu")
        if not start.is_meta:
            check_alpha(start.min().item())
            check_alpha(start.max().item())
            if learned and start.min() <= 1:
                raise ValueError("alpha must be above 1 to be learned: at 1 it has no gradient")
        elif not learned:
            raise ValueError("alpha is on the meta device and has no values; create it on the CPU")
        self.learned = learned
        self.number = None if several or learned else float(alpha)
        if learned:
            beyond = start - 1.0
            # The inverse of softplus, written so that it does not overflow.
            raw = beyond + (-torch.expm1(-beyond)).log()
            self.raw_alpha = nn.Parameter(raw if several else raw.to(torch.get_default_device()))
        elif several:
            self._given = start
            self.register_constants()

    def constants(self) -> dict[str, Tensor]:
        return {"given_alpha": self._given}

    @property
    def alpha(self) -> float | Tensor:
        """α: the given number or tensor, or the current value of the parameter."""
        if self.learned:
            return 1.0 + F.softplus(widened(self.raw_alpha))
        return self.given_alpha if self.number is None else self.number

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        # Some values have a closed form, which is faster.
        if self.number == 1.0:
            return masked_softmax(scores, allowed)
        if self.number == 1.5:
            return entmax15(scores, allowed)
        if self.number == 2.0:
            return sparsemax(scores, allowed)
        return entmax_bisect(scores, self.alpha, allowed)

    def extra_repr(self) -> str:
        return "learned" if self.learned else f"alpha={self.alpha}"
