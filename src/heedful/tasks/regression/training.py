"""Training by mean squared error.

Shapes: B rows.
"""

from torch import Tensor

from heedful.data.examples import Rated
from heedful.evaluation.correlation import correlations
from heedful.tasks.regression.predictor import Regressor
from heedful.tasks.texts.training import LabelTask, read
from heedful.training.protocol import Sample, Validation


class RegressionTask(LabelTask[Rated, Regressor]):
    """The training task of regressions; the arguments are those of :class:`LabelTask`.

    The loss is in units of the variance of the training numbers.
    """

    def errors(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The summed squared error, twice: for the gradient and for the report."""
        total = (outputs[:, 0].float() - labels).square().sum()
        return total, total.detach()

    def _measure(self) -> Validation:
        found = self.reader.predict([read(example) for example in self.validation])
        gold = [example.value for example in self.validation]
        given = [self.reader.mean if one.value is None else one.value for one in found]
        scale = self.reader.deviation**2
        squares = [(one - other) ** 2 for one, other in zip(given, gold, strict=True)]
        figures = {"loss": sum(squares) / len(squares) / scale, **correlations(gold, given)}
        shown = [
            Sample(" / ".join(example.texts), f"{value:.4g}", f"{example.value:.4g}")
            for example, value in zip(self.validation[: self.samples], given, strict=False)
        ]
        return Validation(figures, shown)
