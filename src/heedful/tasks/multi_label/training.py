"""Training by the binary cross-entropy of each label.

Shapes: B rows, C labels.
"""

import math

import torch.nn.functional as F

from heedful.basics.device import autocast
from heedful.data.examples import MultiLabelled
from heedful.evaluation.label_sets import best_thresholds, score_sets
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.multi_label.predictor import MultiLabelClassifier
from heedful.tasks.texts.rows import RowBatch
from heedful.tasks.texts.training import LabelTask, read
from heedful.training.distillation import Predicted, wide
from heedful.training.protocol import Loss, Sample, Validation

_LEAST = 1e-30


class MultiLabelTask(LabelTask[MultiLabelled, MultiLabelClassifier]):
    """The training task of several labels; the arguments are those of :class:`LabelTask`."""

    def predict(self, model: HeadedEncoder, batch: RowBatch) -> Predicted:
        """The logits and labels ``[B, C]``."""
        with autocast(self.device, self.precision):
            outputs = model.heads[self.head](model.encoder(batch.rows))
        return Predicted(wide(outputs), batch.labels)

    def loss_of(self, predicted: Predicted, batch: RowBatch) -> Loss:
        """The binary cross-entropy: the mean of the labels, summed over rows."""
        each = F.binary_cross_entropy_with_logits(
            predicted.logits, predicted.labels.to(predicted.logits.dtype), reduction="none"
        )
        total = each.mean(1).sum()
        return Loss(total, {"loss": total.detach()})

    def _measure(self) -> Validation:
        """Figures of all labels; first the thresholds are chosen, unless the recipe fixes one."""
        found = self.reader.predict([read(example) for example in self.validation])
        gold = [example.labels for example in self.validation]
        probabilities = [list(one.probabilities.values()) for one in found]
        layer = self.reader.layer
        if layer.fixed is None:
            layer.choose(best_thresholds(gold, probabilities, self.reader.labels))
            found = [self.reader.at_thresholds(one) for one in found]
        given = [one.labels for one in found]
        report = score_sets(gold, given, probabilities, self.reader.labels)
        surprise = [
            -math.log(max(p if label in labels else 1 - p, _LEAST))
            for one, labels in zip(found, gold, strict=True)
            for label, p in one.probabilities.items()
        ]
        shown = [
            Sample(" / ".join(example.texts), ", ".join(one.labels), ", ".join(example.labels))
            for example, one in zip(self.validation[: self.samples], found, strict=False)
        ]
        figures = {"loss": sum(surprise) / max(1, len(surprise)), **report.figures()}
        return Validation(figures, shown)
