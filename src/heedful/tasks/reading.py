"""Classification and tagging: rows, learnt by the cross-entropy of what is decided of them.

Shapes: B rows, L tokens, C classes, R hops.
"""

import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention import watch
from heedful.attention.disagreement import disagreement
from heedful.basics.device import autocast
from heedful.data.examples import Labelled, Tagged
from heedful.data.positions import Position
from heedful.evaluation.classification import score_classification, score_tagging
from heedful.inference.classifier import Classifier, Text
from heedful.inference.tagger import Tagger
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.protocol import Loss, Sample, Validation
from heedful.tasks.rows import RowBatch, RowBatches

_LEAST = 1e-30
"""A probability that rounding has made zero costs as much as this."""


class ReadingTask:
    """What learning to classify and learning to tag have in common.

    Args:
        model: an encoder with a head of that name.
        train: the training rows.
        head: the head's name.
        device: where the model is.
        label_smoothing: ε in [0, 1) of the training loss.
        penalty: of ``‖AAᵀ − I‖²_F`` of each row's hops (Lin et al. 2017, equation 8).
        precision: of matrix products in training; validation is in float32.
        samples: how many decisions are shown at validation.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        train: RowBatches,
        head: str,
        *,
        device: torch.device,
        label_smoothing: float = 0.0,
        penalty: float = 0.0,
        precision: str = "float32",
        samples: int = 3,
    ) -> None:
        self.model: HeadedEncoder = model
        self.train, self.head, self.device = train, head, device
        self.label_smoothing, self.penalty = label_smoothing, penalty
        self.precision, self.samples = precision, samples
        self._hops = (
            [name for name, axes in model.attention_axes().items() if axes[0] == "hops"]
            if penalty
            else []
        )

    def batches(self, position: Position) -> Iterator[tuple[Position, RowBatch]]:
        """Batches without end from ``position``, each with the position after it."""
        return self.train.batches(position)

    def loss(self, batch: RowBatch) -> Loss:
        """Summed cross-entropy of the decisions; its part ``loss`` is unsmoothed.

        With a penalty on hops it is added, and the part ``overlap`` is what it is of.
        """
        watching = watch(self.model, self._hops, keep_gradients=True)
        with autocast(self.device, self.precision), watching as seen:
            logits = self.model.heads[self.head](self.model.encoder(batch.rows))
            chosen, labels = decided(logits, batch.labels)
            total = F.cross_entropy(
                chosen.float(), labels, label_smoothing=self.label_smoothing, reduction="sum"
            )
            exact = F.cross_entropy(chosen.detach().float(), labels, reduction="sum")
        if not self._hops:
            return Loss(total, {"loss": exact})
        overlap = sum(
            (disagreement(calls[0]).sum() for calls in map(seen.__getitem__, self._hops)),
            start=total.new_zeros(()),
        )
        # A batch's weight is its rows, as is that of the penalty: hops are pooling's.
        return Loss(total + self.penalty * overlap, {"loss": exact, "overlap": overlap.detach()})

    def tensors(self) -> dict[str, Tensor]:
        """Nothing is remembered from batch to batch."""
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """There is nothing to load."""


def decided(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The logits ``[N, C]`` that are to be decided, and their classes ``[N]``.

    Args:
        logits: ``[B, C]``, or ``[B, L, C]`` where tokens have labels.
        labels: as :class:`RowBatch` has them.
    """
    if labels.dim() == 1:
        return logits, labels
    real = labels > 0
    return logits[real], labels[real] - 1


class ClassificationTask(ReadingTask):
    """Learning to classify; the arguments are those of :class:`ReadingTask` and

    Args:
        validation: examples to validate on; may be empty.
        classifier: classifies with ``model``, as every command does.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        train: RowBatches,
        validation: Sequence[Labelled],
        classifier: Classifier,
        *,
        device: torch.device,
        label_smoothing: float = 0.0,
        penalty: float = 0.0,
        precision: str = "float32",
        samples: int = 3,
    ) -> None:
        super().__init__(
            model,
            train,
            classifier.head,
            device=device,
            label_smoothing=label_smoothing,
            penalty=penalty,
            precision=precision,
            samples=samples,
        )
        self.validation, self.classifier = validation, classifier

    def validate(self) -> Validation:
        """``loss`` an example (nats), accuracy, macro F1 and Matthews' correlation."""
        if not self.validation:
            return Validation({}, [])
        found = self.classifier.classify([read(example) for example in self.validation])
        gold = [example.label for example in self.validation]
        given = [one.label or self.classifier.labels[0] for one in found]
        report = score_classification(gold, given, labels=self.classifier.labels, worst=0)
        surprise = [
            -math.log(max(one.probabilities[label], _LEAST))
            for one, label in zip(found, gold, strict=True)
        ]
        figures = {"loss": sum(surprise) / len(surprise), **report.figures()}
        shown = [
            Sample(" / ".join(example.texts), label, example.label)
            for example, label in zip(self.validation[: self.samples], given, strict=False)
        ]
        return Validation(figures, shown)


def _side_by_side(words: Sequence[str], tags: Sequence[str]) -> str:
    """ "the/DET dog/NOUN"."""
    return " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True))


def read(example: Labelled) -> Text:
    """What a classifier reads of an example."""
    return example.texts[0] if len(example.texts) == 1 else (example.texts[0], example.texts[1])


class TaggingTask(ReadingTask):
    """Learning to tag; the arguments are those of :class:`ReadingTask` and

    Args:
        validation: sentences to validate on; may be empty.
        tagger: tags with ``model``, as every command does.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        train: RowBatches,
        validation: Sequence[Tagged],
        tagger: Tagger,
        *,
        device: torch.device,
        label_smoothing: float = 0.0,
        precision: str = "float32",
        samples: int = 3,
    ) -> None:
        super().__init__(
            model,
            train,
            tagger.head,
            device=device,
            label_smoothing=label_smoothing,
            precision=precision,
            samples=samples,
        )
        self.validation, self.tagger = validation, tagger

    def validate(self) -> Validation:
        """Accuracy of words, and macro F1 of tags."""
        if not self.validation:
            return Validation({}, [])
        found = self.tagger.tag([example.words for example in self.validation])
        gold = [example.tags for example in self.validation]
        report = score_tagging(gold, found, labels=self.tagger.tags, worst=0)
        shown = [
            Sample(
                " ".join(example.words),
                _side_by_side(example.words, tags),
                _side_by_side(example.words, example.tags),
            )
            for example, tags in zip(self.validation[: self.samples], found, strict=False)
        ]
        return Validation(report.figures(), shown)
