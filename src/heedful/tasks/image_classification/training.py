"""The training task: the cross-entropy of the labels.

Shapes: B images, H rows, W columns, C channels, N classes.
"""

from typing import Any

import torch.nn.functional as F

from heedful.data.column_batch import ColumnBatch
from heedful.data.image_batches import images_of, varied
from heedful.data.store import Store
from heedful.training.column_task import ColumnTask
from heedful.training.protocol import Loss


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
        self.model: Any = model
        self.settings, self.classes = settings, classes

    def batch_loss(self, batch: ColumnBatch) -> Loss:
        """The cross-entropy, and the number of images whose label is predicted."""
        images, labels = images_of(batch), batch["label"].values
        if self.model.training:
            images = varied(images, self.settings.shift, self.settings.flip)
            total, logits, parts = self.model.losses(images, labels, self.settings.label_smoothing)
        else:
            logits = self.model(images).float()
            total = F.cross_entropy(logits, labels, ignore_index=self.classes, reduction="sum")
            parts = {"loss": total}
        right = (logits.argmax(1) == labels).sum()
        if self.model.training:
            return Loss(total, {**parts, "accuracy": right})
        known = max(1, int((labels < self.classes).sum()))
        return Loss(total, {**parts, "accuracy": right}, {"loss": known})
