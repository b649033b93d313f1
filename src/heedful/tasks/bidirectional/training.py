"""Pre-training of a language model in each direction.

Peters et al. 2018, "Deep contextualized word representations", section 3.1.
Shapes: B rows, L characters, W words, N words that are predicted, P width of a direction.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.basics.device import autocast
from heedful.data.positions import SINGLE, Position, Rank
from heedful.inference.inference_mode import ready
from heedful.kernels.cross_entropy import cross_entropy
from heedful.layers.dropout import Dropout
from heedful.models.elmo import Directions, Elmo
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.texts.rows import RowBatch, RowBatches
from heedful.training.protocol import Loss, TaskDefaults, Validation

BOUNDARY = 0
"""The class of BEGIN and END, which have no label."""


class WordOutput(nn.Module):
    """The output layer over the words, which both directions share."""

    def __init__(self, width: int, words: int, dropout: float) -> None:
        super().__init__()
        self.drop = Dropout(dropout)
        self.output = nn.Linear(width, words)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        nn.init.zeros_(self.output.bias)

    def losses(self, states: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Summed cross-entropy of ``states [N, P]`` with smoothing, and that of each, detached."""
        return cross_entropy(
            self.drop(states), self.output.weight, labels, smoothing, self.output.bias
        )

    def log_probabilities(self, states: Tensor) -> Tensor:
        """``[N, P] -> [N, words]``"""
        found: Tensor = self.output(states).float().log_softmax(-1)
        return found


class Predictions(NamedTuple):
    """The states of one direction, and the words that they predict."""

    states: Tensor
    """``[N, P]``, row by row."""
    labels: Tensor
    """The classes ``[N]``."""


def predictions(found: Directions, labels: Tensor) -> tuple[Predictions, Predictions]:
    """What each direction predicts: the next word or END; the word before or BEGIN.

    Args:
        found: the states of a batch.
        labels: the class of each word at its first character ``[B, L]``, 0 elsewhere.
    """
    words = labels.gather(1, found.spans.starts)  # [B, W]; BEGIN and END have BOUNDARY
    follows = found.spans.real[:, 1:]
    to_right, to_left = found.forward[-1], found.backward[-1]
    return (
        Predictions(to_right[:, :-1][follows], words[:, 1:][follows]),
        Predictions(to_left[:, 1:][follows], words[:, :-1][follows]),
    )


class BidirectionalTask(TaskDefaults):
    """The training task: the sum of the losses of both directions (equation 2).

    Args:
        model: an encoder with directions, and the head ``name``.
        train: rows of the training text.
        validation: rows to validate on, one epoch of them; None without validation.
        name: the name of the head.
        device: where the model is.
        label_smoothing: ε in [0, 1) of the training loss.
        precision: precision of matrix products in training; validation is in float32.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        train: RowBatches,
        validation: RowBatches | None,
        *,
        name: str = "bidirectional",
        device: torch.device,
        label_smoothing: float = 0.0,
        precision: str = "float32",
    ) -> None:
        self.model: HeadedEncoder = model
        self.train, self.validation, self.name = train, validation, name
        self.device, self.label_smoothing, self.precision = device, label_smoothing, precision

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, RowBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        return self.train.batches(position, rank)

    def loss(self, batch: RowBatch) -> Loss:
        """The sum of both directions' losses, times the number of words.

        The parts are sums over the predictions, which are one more than the words in each row and
        direction. The part ``loss`` is without smoothing.
        """
        with autocast(self.device, self.precision):
            total, forward, backward, count = self._losses(batch, self.label_smoothing)
        parts = {"loss": forward + backward, "forward": forward, "backward": backward}
        return Loss(
            total * (batch.weight / max(1, count)), parts, dict.fromkeys(parts, max(1, count))
        )

    def _losses(self, batch: RowBatch, smoothing: float) -> tuple[Tensor, Tensor, Tensor, int]:
        """The sum that is trained, those of both directions, and the predictions of a direction."""
        encoder, head = self.model.encoder, self.model.heads[self.name]
        assert isinstance(encoder, Elmo)
        assert isinstance(head, WordOutput)
        totals, sums, count = [], [], 0
        for states, labels in predictions(encoder.directions(batch.rows), batch.labels):
            total, exact = head.losses(states, labels, smoothing)
            totals.append(total)
            sums.append(exact.sum())
            count = len(labels)
        return totals[0] + totals[1], sums[0], sums[1], count

    def validate(self) -> Validation:
        """Losses (nats) and perplexities of the words in each direction; ``loss`` is the sum."""
        if self.validation is None:
            return Validation({}, [])
        sums = torch.zeros(2, dtype=torch.float64)
        count = 0
        with ready(self.model, self.device, "float32"):
            for after, batch in self.validation.batches(Position(0)):
                _, forward, backward, own = self._losses(batch.to(self.device), 0.0)
                sums += torch.stack([forward, backward]).double().cpu()
                count += own
                if after.epoch:
                    break
        return Validation(figures_of(sums[0].item(), sums[1].item(), count), [])


def figures_of(forward: float, backward: float, count: int) -> dict[str, float]:
    """The figures of summed losses of ``count`` predictions in each direction."""
    forward, backward = forward / max(1, count), backward / max(1, count)
    return {
        "loss": forward + backward,
        "forward_loss": forward,
        "backward_loss": backward,
        "forward_perplexity": math.exp(min(forward, 700.0)),
        "backward_perplexity": math.exp(min(backward, 700.0)),
    }
