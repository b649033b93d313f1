"""The output layer for any number of labels of a text.

Shapes: B rows, C labels.
"""

import torch
from torch import Tensor

from heedful.models.encoders import Classifier


class LabelSetLayer(Classifier):
    """A linear layer with one output for each label, and the thresholds of the labels.

    A label is given if its probability, the sigmoid of its output, is at least its threshold.

    Args:
        width: width of a text's vector.
        labels: C.
        dropout: on the vector.
        max_norm: maximum norm of the weights of a label; unlimited if None.
        threshold: that of all labels; None for one of each label, which validation sets and which
            are saved with the weights. They are 0.5 before.
    """

    chosen: Tensor

    def __init__(
        self,
        width: int,
        labels: int,
        dropout: float,
        max_norm: float | None = None,
        *,
        threshold: float | None = 0.5,
    ) -> None:
        super().__init__(width, labels, dropout, max_norm)
        self.labels, self.fixed = labels, threshold
        if threshold is None:
            self.register_buffer("chosen", torch.full((labels,), 0.5))

    def thresholds(self) -> list[float]:
        """The threshold of each label ``[C]``."""
        if self.fixed is not None:
            return [self.fixed] * self.labels
        found: list[float] = self.chosen.tolist()
        return found

    def choose(self, thresholds: list[float]) -> None:
        """Set the thresholds of the labels ``[C]``.

        They are below 1 in float32 as well, because hardly any probability reaches 1.
        """
        self.chosen.copy_(torch.tensor(thresholds).clamp(max=1 - 2**-24))
