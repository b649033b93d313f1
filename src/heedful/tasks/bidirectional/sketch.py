"""The loss of a language model in each direction on paper."""

from typing import cast

import torch
from torch import Tensor

from heedful.models.elmo import Elmo
from heedful.tasks.bidirectional.training import predictions
from heedful.tasks.texts.sketch import SketchedHead, cross_entropy


def paper_loss(head: SketchedHead) -> Tensor:
    """The sum of the losses of both directions."""
    found = cast(Elmo, head.model.encoder).directions(head.rows)
    none = torch.zeros_like(head.rows.tokens)
    losses = [
        cross_entropy(head.layer.output(states), labels)
        for states, labels in predictions(found, none)
    ]
    return torch.stack(losses).sum()
