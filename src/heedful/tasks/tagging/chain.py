"""Training of conditional random fields over tags.

Shapes: B rows, L tokens, W words, C tags.
"""

from typing import cast

import torch
from torch import Tensor

from heedful.basics.device import autocast
from heedful.layers.linear_chain import log_likelihood
from heedful.models.encoders import ChainTagger, HeadedEncoder
from heedful.tasks.texts.rows import RowBatch
from heedful.tasks.texts.training import TaggingTask
from heedful.training.distillation import Predicted, wide
from heedful.training.protocol import Loss


class ChainTask(TaggingTask):
    """As :class:`~heedful.tasks.texts.training.TaggingTask`, for all tags of a row together.

    A word without a tag may have any: the likelihood is summed over all tags of it. A window of a
    long sentence is a sequence of its own, which no score of a first or last tag distorts.
    """

    @property
    def untagged(self) -> int:
        return len(self.reader.tags) + 1

    def predict(self, model: HeadedEncoder, batch: RowBatch) -> Predicted:
        """The emissions ``[B, L, C]`` and the labels ``[B, L]``."""
        with autocast(self.device, self.precision):
            logits = model.heads[self.head](model.encoder(batch.rows))
        return Predicted(wide(logits), batch.labels)

    def loss_of(self, predicted: Predicted, batch: RowBatch) -> Loss:
        """The summed −log p of the tags of each row."""
        total = -self._likelihood(predicted.logits, predicted.labels).sum()
        return Loss(total, {"loss": total.detach()})

    def _summed_surprise(self, logits: Tensor, labels: Tensor) -> float:
        return -float(self._likelihood(logits, labels).sum())

    def _likelihood(self, logits: Tensor, labels: Tensor) -> Tensor:
        """``log p`` of the tags of each row ``[B]``."""
        head = cast(ChainTagger, self.model.heads[self.head])
        emissions, labels, lengths = words_of(logits, labels)
        tags = torch.where(labels == self.untagged, 0, labels) - 1
        return log_likelihood(emissions, head.transitions.to(emissions.dtype), tags, lengths)


def words_of(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The logits ``[B, W, C]`` and labels ``[B, W]`` of words, and the words of each row ``[B]``.

    Args:
        logits: of tokens ``[B, L, C]``.
        labels: ``[B, L]``, 0 for tokens that do not begin a word.
    """
    begins = labels > 0
    lengths = begins.sum(1)
    order = torch.sort(begins.long(), dim=1, descending=True, stable=True).indices
    order = order[:, : int(lengths.max())]
    emissions = logits.gather(1, order.unsqueeze(2).expand(-1, -1, logits.shape[2]))
    return emissions, labels.gather(1, order), lengths
