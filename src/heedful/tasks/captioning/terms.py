"""The loss that asks for equal attention to all cells.

Shapes: B captions, H heads, T target tokens, K cells.
"""

import torch
from torch import Tensor

from heedful.basics.symbols import PAD
from heedful.training.protocol import Loss
from heedful.training.terms import TeacherForced, all_steps


class Coverage:
    """The term ``λ Σ_k (1 − Σ_t α_tk)²`` of each caption, with the mean of the heads as α.

    Its part ``coverage`` is the sum without λ.

    Args:
        module: the attention module.
        weight: λ.

    Source: Xu et al. 2015, section 4.2.1, equation 14 ("doubly stochastic attention").
    """

    def __init__(self, module: str, weight: float) -> None:
        self.modules, self.weight = (module,), weight

    def loss(self, forced: TeacherForced) -> Loss:
        """The sum over the captions."""
        weights = all_steps(forced.seen[self.modules[0]]).mean(1)  # [B, T, K]
        real = (forced.labels != PAD).unsqueeze(-1)
        total = (1 - (weights * real).sum(1)).square().sum()
        return Loss(self.weight * total, {"coverage": total.detach()})

    def tensors(self) -> dict[str, Tensor]:
        """Empty: the term has no state."""
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Do nothing: the term has no state."""
