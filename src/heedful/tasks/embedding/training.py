"""Training of vectors: contrastive, or by the cosines of rated pairs.

Shapes: B examples, n texts of an example, D width.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.device import autocast
from heedful.data.examples import Similar
from heedful.data.positions import SINGLE, Position, Rank
from heedful.layers.contrastive import comparable, contrastive_losses
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.embedding.batches import SimilarBatch, SimilarBatches
from heedful.tasks.embedding.measures import measure
from heedful.tasks.embedding.predictor import Embedder
from heedful.training.distillation import wide
from heedful.training.protocol import Loss, Sample, TaskDefaults, Validation


class EmbeddingTask(TaskDefaults):
    """The training task of vectors.

    Similar texts: InfoNCE with the other examples of the batch as negatives
    (:mod:`heedful.layers.contrastive`). Single texts: the same, where the positive of a text is the
    text itself with other dropout (Gao et al. 2021, section 3). Rated pairs: the squared
    difference of the cosine and the rating.

    Args:
        model: an encoder with the reader's pooling.
        train: the training examples.
        validation: examples to validate on; may be empty.
        reader: embeds the validation texts with ``model``.
        temperature: τ of the contrastive loss.
        scale: the ratings that stand for the cosines 0 and 1.
        device: where the model is.
        precision: precision of matrix products in training; validation is in float32.
        samples: number of pairs shown at validation.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        train: SimilarBatches,
        validation: Sequence[Similar],
        reader: Embedder,
        *,
        temperature: float,
        scale: tuple[float, float],
        device: torch.device,
        precision: str = "float32",
        samples: int = 3,
    ) -> None:
        self.model: HeadedEncoder = model
        self.train, self.validation, self.reader = train, validation, reader
        self.temperature, self.scale = temperature, scale
        self.device, self.precision, self.samples = device, precision, samples

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, SimilarBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        return self.train.batches(position, rank)

    def loss(self, batch: SimilarBatch) -> Loss:
        """The summed loss of the examples."""
        with autocast(self.device, self.precision):
            encoded = self.model.encoder(batch.rows)
            vectors = self.model.heads[self.reader.head](encoded, batch.rows.lengths)
        total = loss_of(wide(vectors), batch, self.temperature).sum()
        return Loss(total, {"loss": total.detach()})

    def validate(self) -> Validation:
        """``loss`` per example, and the figures of :class:`~.measures.Measured`."""
        if not self.validation:
            return Validation({}, [])
        found = measure(self.reader, self.validation, self.temperature, self.scale)
        shown = [
            Sample(
                " / ".join(example.texts[:2]),
                f"{cosine:.3f}",
                "similar" if example.rating is None else f"{example.rating:g}",
            )
            for example, cosine in zip(self.validation[: self.samples], found.cosines, strict=False)
        ]
        return Validation(found.figures, shown)


def loss_of(vectors: Tensor, batch: SimilarBatch, temperature: float) -> Tensor:
    """The loss of each example ``[B]``.

    Args:
        vectors: ``[n·B, D]``, in the order of the batch's rows.
        batch: the examples.
        temperature: τ of the contrastive loss.
    """
    anchors, others = vectors[: batch.weight], vectors[batch.weight :]
    if batch.ratings is not None:
        return (F.cosine_similarity(anchors, others, dim=-1) - batch.ratings).square()
    return contrastive_losses(anchors, others, comparable(batch.texts), temperature)
