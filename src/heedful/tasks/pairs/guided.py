"""Guided alignment: attention is trained on given word links.

    L = −Σ_t 1/|A_t| Σ_{s ∈ A_t} log a[t, s]

summed over the target tokens t that are linked to source tokens A_t.
Chen et al. 2016, "Guided alignment training for topic-aware neural machine translation", section
3; for one head of a Transformer Garg et al. 2019, "Jointly learning to align and translate with
Transformer models", section 4.2.

Shapes: B batch, H heads, S source tokens, T target tokens.
"""

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.inference.alignment import rows_of
from heedful.models.pairs import AlignmentSource
from heedful.training.protocol import Loss
from heedful.training.terms import TeacherForced, all_steps

_LEAST = 1e-9
"""Added to weights before the logarithm, because some normalizers return zeros."""


class GuidedAlignment:
    """The term of the loss that trains attention on given links.

    Its part ``guided_alignment`` is the sum above, without the weight.

    Args:
        where: the module, the heads (their mean is trained), and the row of a target token.
        weight: the weight of this term.
    """

    def __init__(self, where: AlignmentSource, weight: float) -> None:
        self.where = where
        self.weight = weight

    @property
    def modules(self) -> tuple[str, ...]:
        """The name of the trained module."""
        return (self.where.module,)

    def loss(self, forced: TeacherForced) -> Loss:
        """The sum over the batch's linked target tokens.

        Raises:
            UserError: the batch has no links, or the module has no such head.
        """
        links = forced.links
        if links is None:
            raise UserError("the encoded corpus has no links; set data.links to their file")
        weights = all_steps(forced.seen[self.where.module])  # [B, H, T, S]
        # One row, the last or the first, belongs to no target token: see `rows_of`.
        mean = rows_of(weights, self.where).float().mean(1)  # [B, T - 1, S]
        row, target, source = links.unbind(1)
        linked = torch.log(mean[row, target, source] + _LEAST)
        place = row * mean.shape[1] + target
        # 1 / |A_t| for each of a token's links.
        share = torch.bincount(place, minlength=mean.shape[0] * mean.shape[1])[place]
        total = -(linked / share).sum()
        return Loss(self.weight * total, {"guided_alignment": total.detach()})

    def tensors(self) -> dict[str, Tensor]:
        """Empty: the term has no state."""
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Do nothing: the term has no state."""
