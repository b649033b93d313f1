"""A normalizer of your own: w_k = softplus(s_k) / Σ_j softplus(s_j), which grows linearly."""

import torch.nn.functional as F
from torch import Tensor

from heedful.attention.normalizers import Normalizer, Queries, register_normalizer


class Softplus(Normalizer):
    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        weights = F.softplus(scores)
        if allowed is not None:
            weights = weights * allowed  # a masked weight is exactly 0
        return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)


register_normalizer("softplus", lambda heads: Softplus())
