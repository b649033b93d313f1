"""The training task: the cross-entropy of the bits that are answered."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.device import autocast
from heedful.data.positions import SINGLE, Position, Rank
from heedful.inference.inference_mode import ready
from heedful.models import SequenceModel
from heedful.tasks.algorithm.batches import (
    VALIDATION,
    AlgorithmBatch,
    held_out,
    training_batches,
)
from heedful.tasks.algorithm.problems import Problem
from heedful.tasks.algorithm.texts import bit_texts, vector_texts
from heedful.training.protocol import Loss, Sample, TaskDefaults, Validation


class Answers:
    """The outputs of a model for a batch, compared with the right bits.

    Args:
        logits: of the answered steps ``[B, A, O]``.
        targets: the right bits ``[B, A, O]``.
    """

    def __init__(self, logits: Tensor, targets: Tensor) -> None:
        self.logits, self.targets = logits.float(), targets

    def loss(self) -> Tensor:
        """The cross-entropy in nats, summed over all bits."""
        return F.binary_cross_entropy_with_logits(self.logits, self.targets, reduction="sum")

    def wrong(self) -> Tensor:
        """The number of wrong bits of each sequence ``[B]``."""
        return ((self.logits > 0) != (self.targets > 0.5)).sum((1, 2))


def answers(model: SequenceModel, batch: AlgorithmBatch) -> Answers:
    """The outputs of a model for a batch."""
    return Answers(model(batch.inputs)[:, batch.answered], batch.targets)


class AlgorithmTask(TaskDefaults):
    """Trains a model on examples that are drawn at random.

    Args:
        model: the model to train, on ``device``.
        problem: what is drawn.
        seed: of the recipe.
        batch_tokens: steps of a batch: rows × T.
        device: the device to compute on.
        precision: of matrix products in training; validation uses float32.
    """

    def __init__(
        self,
        model: SequenceModel,
        problem: Problem,
        seed: int,
        batch_tokens: int,
        *,
        device: torch.device,
        precision: str = "float32",
    ) -> None:
        self.model, self.problem, self.seed = model, problem, seed
        self.batch_tokens, self.device, self.precision = batch_tokens, device, precision

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, AlgorithmBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        return training_batches(self.problem, self.batch_tokens, position, rank)

    def loss(self, batch: AlgorithmBatch) -> Loss:
        """The cross-entropy of a batch in nats, summed over its bits."""
        with autocast(self.device, self.precision):
            found = answers(self.model, batch)
        total = found.loss()
        return Loss(total, {"loss": total.detach()})

    def validate(self) -> Validation:
        """Nats per bit, bits per sequence and the share of wrong bits in percent."""
        loss = wrong = bits = rows = 0.0
        samples: list[Sample] = []
        with ready(self.model, self.device):
            for drawn in held_out(self.problem, self.seed, VALIDATION, self.problem.validation):
                batch = AlgorithmBatch.of(drawn).to(self.device)
                found = answers(self.model, batch)
                loss += float(found.loss())
                wrong += float(found.wrong().sum())
                bits, rows = bits + batch.weight, rows + len(batch.inputs)
                if not samples:
                    samples.append(_sample(found, batch))
        figures = {
            "loss": loss / bits,
            "bits": loss / math.log(2) / rows,
            "wrong_bits": 100 * wrong / bits,
        }
        return Validation(figures, samples)


def _sample(found: Answers, batch: AlgorithmBatch) -> Sample:
    texts = (bit_texts(one[0] > 0) for one in (found.logits, batch.targets - 0.5))
    output, reference = map(" ".join, texts)
    return Sample(" ".join(vector_texts(batch.inputs[0])), output, reference)
