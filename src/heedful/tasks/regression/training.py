"""Training by mean squared error.

Shapes: B rows.
"""

from heedful.basics.device import autocast
from heedful.data.examples import Rated
from heedful.evaluation.correlation import correlations
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.regression.predictor import Regressor
from heedful.tasks.texts.rows import RowBatch
from heedful.tasks.texts.training import LabelTask, read
from heedful.training.distillation import Predicted, wide
from heedful.training.protocol import Loss, Sample, Validation


class RegressionTask(LabelTask[Rated, Regressor]):
    """The training task of regressions; the arguments are those of :class:`LabelTask`.

    The loss is in units of the variance of the training numbers.
    """

    def predict(self, model: HeadedEncoder, batch: RowBatch) -> Predicted:
        """The numbers ``[B, 1]``."""
        with autocast(self.device, self.precision):
            outputs = model.heads[self.head](model.encoder(batch.rows))
        return Predicted(wide(outputs), batch.labels)

    def loss_of(self, predicted: Predicted, batch: RowBatch) -> Loss:
        """The summed squared error."""
        total = (predicted.logits[:, 0] - predicted.labels).square().sum()
        return Loss(total, {"loss": total.detach()})

    def _measure(self) -> Validation:
        found = self.reader.predict([read(example) for example in self.validation])
        gold = [example.value for example in self.validation]
        given = [self.reader.mean if one.value is None else one.value for one in found]
        scale = self.reader.deviation
        squares = [((one - other) / scale) ** 2 for one, other in zip(given, gold, strict=True)]
        figures = {"loss": sum(squares) / len(squares), **correlations(gold, given)}
        shown = [
            Sample(" / ".join(example.texts), f"{value:.4g}", f"{example.value:.4g}")
            for example, value in zip(self.validation[: self.samples], given, strict=False)
        ]
        return Validation(figures, shown)
