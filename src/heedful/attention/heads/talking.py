"""Talking heads: linear maps over the heads before and after the softmax.

    J = Q Kᵀ / √d,   L = J P_l,   W = softmax(L),   U = W P_w,   O = U V

J, L, W and U have one matrix for each head; P_l and P_w mix the heads at each query and key.
Shazeer et al. 2020, "Talking-Heads Attention", sections 4 and 5 (pseudocode), with equally many
heads everywhere (h_k = h = h_v).
"""

import torch
from torch import Tensor, nn

from heedful.attention.heads.mixing import HeadMixing


def mix_heads(numbers: Tensor, matrix: Tensor) -> Tensor:
    """``Σ_h numbers[.., h, Q, K] · matrix[h, m]``, ``[.., M, Q, K]``.

    Example:
        >>> mix_heads(torch.tensor([[[1.0]], [[2.0]]]), torch.tensor([[1.0, 0.5], [0.0, 1.0]]))
        tensor([[[1.0000]],
        <BLANKLINE>
                [[2.5000]]])
    """
    return torch.einsum("...hqk,hm->...mqk", numbers, matrix.to(numbers.dtype))


class TalkingHeads(HeadMixing):
    """Mixes the scores of all heads, and their weights.

    Parameters: ``score_mixing`` (P_l) and ``weight_mixing`` (P_w), both ``[heads, heads]`` and
    initially the identity, with which heads are independent. Weights of a row no longer sum to 1,
    and may be negative. Masks must be the same for all heads.

    Args:
        heads: number of heads H.
        scores: whether scores are mixed.
        weights: whether weights are mixed.

    Raises:
        ValueError: ``heads`` is below 2, or neither scores nor weights are mixed.

    Source: Shazeer et al. 2020, sections 4 and 6 (either projection alone).

    Example:
        >>> TalkingHeads(heads=2).mix_scores(torch.ones(1, 2, 3, 5)).shape  # [B, H, Q, K]
        torch.Size([1, 2, 3, 5])
    """

    def __init__(self, heads: int, *, scores: bool = True, weights: bool = True) -> None:
        super().__init__(heads)
        if heads < 2:
            raise ValueError(f"heads must be at least 2 to be mixed, not {heads}")
        if not (scores or weights):
            raise ValueError("talking heads mix scores, weights, or both; both are off")
        self.score_mixing = nn.Parameter(torch.eye(heads)) if scores else None
        self.weight_mixing = nn.Parameter(torch.eye(heads)) if weights else None

    def mix_scores(self, scores: Tensor) -> Tensor:
        return scores if self.score_mixing is None else mix_heads(scores, self.score_mixing)

    def mix_weights(self, weights: Tensor) -> Tensor:
        return weights if self.weight_mixing is None else mix_heads(weights, self.weight_mixing)

    def extra_repr(self) -> str:
        scores, weights = self.score_mixing is not None, self.weight_mixing is not None
        return f"{self.heads}, scores={scores}, weights={weights}"
