"""The training task: the cross-entropy of the labels.

Shapes: B images, H rows, W columns, C channels, N classes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.column_batch import ColumnBatch
from heedful.data.store import Store
from heedful.training.column_task import ColumnTask
from heedful.training.protocol import Loss


def images_of(batch: ColumnBatch) -> Tensor:
    """The images ``[B, H, W, C]``, which have one size."""
    column = batch["image"]
    assert column.shapes is not None
    return column.values.reshape(len(column.shapes), *column.shapes[0].tolist())


def varied(images: Tensor, shift: int, flip: bool) -> Tensor:
    """Images ``[B, H, W, C]`` moved and mirrored at random; what moves in is 0.

    Args:
        images: the images.
        shift: the largest distance in pixels, in both directions.
        flip: whether half of the images are mirrored from left to right.
    """
    if flip:
        mirrored = torch.rand(len(images)) < 0.5
        images = torch.where(mirrored.view(-1, 1, 1, 1).to(images.device), images.flip(2), images)
    if not shift:
        return images
    rows, columns = images.shape[1:3]
    wide = F.pad(images, [0, 0, shift, shift, shift, shift])
    starts = torch.randint(2 * shift + 1, (2, len(images), 1)).to(images.device)
    down = (starts[0] + torch.arange(rows, device=images.device))[:, :, None]
    right = (starts[1] + torch.arange(columns, device=images.device))[:, None]
    which = torch.arange(len(images), device=images.device)[:, None, None]
    return wide[which, down, right]


class ImageTask(ColumnTask):
    """Trains a model that classifies images.

    Args:
        model: the model to train, on ``device``.
        settings: ``[training]`` of the recipe.
        classes: number of classes N; the label N stands for a label that training has not.
        stores: training data, and validation data or None.
        how: ``device`` and ``precision``.
    """

    by = ("image",)

    def __init__(
        self,
        model: Any,
        settings: Any,
        classes: int,
        stores: tuple[Store, Store | None],
        **how: Any,
    ) -> None:
        super().__init__(model, stores[0], stores[1], settings.batch_tokens, **how)
        self.settings, self.classes = settings, classes

    def batch_loss(self, batch: ColumnBatch) -> Loss:
        """The cross-entropy, and the number of images whose label is predicted."""
        images, labels = images_of(batch), batch["label"].values
        training = self.model.training
        if training:
            images = varied(images, self.settings.shift, self.settings.flip)
        logits = self.model(images).float()
        total = F.cross_entropy(
            logits,
            labels,
            ignore_index=self.classes,
            reduction="sum",
            label_smoothing=self.settings.label_smoothing if training else 0.0,
        )
        right = (logits.argmax(1) == labels).sum()
        return Loss(total, {"loss": total.detach(), "accuracy": right})
