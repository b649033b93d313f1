"""The losses on attention weights; among them, one that asks for equal attention to all cells.

Shapes: B captions, H heads, T target tokens, K cells.
"""

from typing import Any

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.symbols import PAD
from heedful.training.protocol import Loss
from heedful.training.reinforce import Reinforce, rewarded_modules
from heedful.training.terms import TeacherForced, Term, all_steps


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


def terms_of(model: Any, training: Any) -> list[Term]:
    """The losses on attention weights that a recipe asks for.

    Args:
        model: a :class:`~heedful.models.CaptionModel`.
        training: ``[training]`` of the recipe.

    Raises:
        UserError: the recipe asks for one that the model cannot have.
    """
    terms: list[Term] = []
    if rewarded := rewarded_modules(model):
        terms.append(Reinforce(rewarded, training.reinforce))
    if training.coverage:
        axes = model.attention_axes()
        reading = [name for name, own in axes.items() if own == ("target", "image")]
        if not reading:
            raise UserError("training.coverage needs an attention to the image; remove it")
        terms.append(Coverage(reading[-1], training.coverage))
    return terms
