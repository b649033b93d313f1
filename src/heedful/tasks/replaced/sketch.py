"""The loss of a discriminator and its generator on paper."""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.tasks.texts.sketch import SketchedHead, cross_entropy


def paper_loss(head: SketchedHead) -> Tensor:
    """The generator's loss of the masked share of tokens, and the discriminator's of all."""
    generator = head.layer.generator
    states = generator(head.rows).states
    logits = generator.head(states[:, : head.chosen(head.settings.replacing.share)].flatten(0, 1))
    masked = cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
    # The discriminator reads other tokens than other heads, so that nothing is shared with them.
    scores = head.layer.detector(head.model.encoder(head.rows).states)
    return masked + F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))
