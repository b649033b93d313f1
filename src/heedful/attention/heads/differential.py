"""Differential attention: the difference of two softmax maps over the same values.

    DiffAttn(X) = (softmax(Q₁K₁ᵀ/√d) − λ softmax(Q₂K₂ᵀ/√d)) V            equation 1
    λ = exp(λ_q1 · λ_k1) − exp(λ_q2 · λ_k2) + λ_init                     equation 2
    λ_init = 0.8 − 0.6 exp(−0.3 (l − 1)) for layer l = 1, 2, …

Ye et al. 2024, "Differential Transformer", section 2.1. Heads 2j and 2j + 1 of the queries are a
pair: the first map and the one that is subtracted. Each head's context is then normalized and
multiplied by 1 − λ_init (equation 3).
"""

import math

import torch
from torch import Tensor, nn

from heedful.attention.heads.mixing import HeadMixing


def initial_lambda(layer: int) -> float:
    """λ_init of a layer, counted from 1.

    Raises:
        ValueError: the layer is below 1.

    Source: Ye et al. 2024, section 2.1.

    Example:
        >>> [round(initial_lambda(layer), 3) for layer in (1, 2, 12)]  # a number for each [layer]
        [0.2, 0.356, 0.778]
    """
    if layer < 1:
        raise ValueError(f"layers count from 1; there is no layer {layer}")
    return 0.8 - 0.6 * math.exp(-0.3 * (layer - 1))


class Differential(HeadMixing):
    """Subtracts the weights of every second head, times λ, from those of the head before it.

    Parameters: λ_q1, λ_k1, λ_q2 and λ_k2, ``[head_dim]``, drawn from N(0, 0.1²). Weights of a row
    sum to 1 − λ and may be negative. Masks must be the same for all heads.

    Args:
        heads: number of pairs of heads; queries have twice as many.
        head_dim: d, the width of the queries of one head.
        layer: number of the layer, counted from 1, for λ_init.

    Raises:
        ValueError: a number is below 1.

    Source: Ye et al. 2024, section 2.1, equations 1 and 2.

    Example:
        >>> mixing = Differential(heads=3, head_dim=4)
        >>> mixing.mix_weights(torch.ones(2, 6, 5, 7)).shape  # [B, H, Q, K]
        torch.Size([2, 3, 5, 7])
    """

    contexts_suffice = True

    def __init__(self, heads: int, head_dim: int, layer: int = 1) -> None:
        super().__init__(2 * heads)
        if head_dim < 1:
            raise ValueError(f"head_dim must be at least 1, not {head_dim}")
        self.initial = initial_lambda(layer)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(torch.randn(head_dim) * 0.1) for _ in range(4)
        )

    @property
    def subtracted(self) -> Tensor:
        """The current λ, a scalar in at least float32."""
        first, second = (
            torch.sum(query * key, dtype=torch.promote_types(query.dtype, torch.float32)).exp()
            for query, key in (
                (self.lambda_q1, self.lambda_k1),
                (self.lambda_q2, self.lambda_k2),
            )
        )
        return first - second + self.initial

    def mix_weights(self, weights: Tensor) -> Tensor:
        first, second = weights.unflatten(-3, (self.heads // 2, 2)).unbind(-3)
        mixed: Tensor = first - self.subtracted.to(weights.dtype) * second
        return mixed

    def mix_contexts(self, contexts: Tensor) -> Tensor:
        return self.mix_weights(contexts)

    def spread_values(self, value: Tensor) -> Tensor:
        return value.repeat_interleave(2, dim=-3)

    def extra_repr(self) -> str:
        return f"{self.heads // 2}, {len(self.lambda_q1)}, initial={self.initial:.3g}"
