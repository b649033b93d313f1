"""The loss of masked tokens on paper."""

import torch
from torch import Tensor

from heedful.tasks.texts.sketch import SketchedHead, cross_entropy


def paper_loss(head: SketchedHead) -> Tensor:
    """The loss of the share of tokens that the recipe masks, and of the pairs of segments."""
    encoded, masking = head.encode(), head.settings.masking
    assert encoded.states is not None
    masked = encoded.states[:, : head.chosen(masking.share)].flatten(0, 1)
    found = cross_entropy(head.layer(masked), torch.zeros(len(masked), dtype=torch.long))
    for end in head.settings.further_layers():
        logits = head.model.heads[f"{head.name}{end}"](encoded)
        found = found + cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
    return found
