"""Training on labelled rows: classifiers and taggers by cross-entropy.

Shapes: B rows, L tokens, C classes, R hops.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention import watch
from heedful.attention.disagreement import disagreement
from heedful.basics.device import autocast
from heedful.data.batching import FEWEST
from heedful.data.examples import (
    Labelled,
    MultiLabelled,
    Rated,
    Tagged,
    outside_if_untagged,
    tagged_only,
)
from heedful.data.positions import SINGLE, Position, Rank
from heedful.data.tag_schemes import mark_spans
from heedful.evaluation.classification import score_classification, score_tagging
from heedful.evaluation.span_scores import score_spans
from heedful.inference.batches import Item, padded, token_batches
from heedful.inference.classifier import Classifier
from heedful.inference.inference_mode import ready
from heedful.inference.tagger import Tagger
from heedful.inference.text_reader import Text
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of
from heedful.tasks.texts.rows import RowBatch, RowBatches, tagged_rows
from heedful.training.distillation import Predicted, inside, loss_of_logits
from heedful.training.protocol import Loss, Sample, TaskDefaults, Validation

ExampleT = TypeVar("ExampleT")


class Reader(Protocol):
    """A predictor with a head."""

    head: str


ReaderT = TypeVar("ReaderT", bound=Reader)

_LEAST = 1e-30
"""Minimum of probabilities before the logarithm, because rounding may give zero."""


class LabelTask(TaskDefaults, Generic[ExampleT, ReaderT]):
    """The base class of training tasks on labelled rows.

    Args:
        model: an encoder with the reader's head.
        train: the training rows.
        validation: examples to validate on; may be empty.
        reader: predicts the labels of the validation examples with ``model``.
        device: where the model is.
        label_smoothing: ε in [0, 1) of the training loss.
        penalty: weight of ``‖AAᵀ − I‖²_F`` of each row's hops (Lin et al. 2017, equation 8).
        precision: precision of matrix products in training; validation is in float32.
        samples: number of predictions shown at validation.
    """

    def __init__(
        self,
        model: HeadedEncoder,
        train: RowBatches,
        validation: Sequence[ExampleT],
        reader: ReaderT,
        *,
        device: torch.device,
        label_smoothing: float = 0.0,
        penalty: float = 0.0,
        precision: str = "float32",
        samples: int = 3,
    ) -> None:
        self.model: HeadedEncoder = model
        self.train, self.validation = train, validation
        self.reader: ReaderT = reader
        self.head, self.device = reader.head, device
        self.label_smoothing, self.penalty = label_smoothing, penalty
        self.precision, self.samples = precision, samples
        self._hops = (
            [name for name, axes in model.attention_axes().items() if axes[0] == "hops"]
            if penalty
            else []
        )

    def validate(self) -> Validation:
        """``loss`` per label (nats), accuracy, macro F1 and Matthews' correlation."""
        return self._measure() if self.validation else Validation({}, [])

    def _measure(self) -> Validation:
        """Like `validate`, for at least one example."""
        raise NotImplementedError

    def batches(
        self, position: Position, rank: Rank = SINGLE
    ) -> Iterator[tuple[Position, RowBatch]]:
        """Endless batches from ``position``, each with the position after it."""
        return self.train.batches(position, rank)

    def loss(self, batch: RowBatch) -> Loss:
        """The summed loss of the labels plus the penalty on hops, if any.

        The part ``loss`` is without smoothing; ``overlap`` is the penalty without its weight.
        """
        if not self._hops:
            return self.loss_of(self.predict(self.model, batch), batch)
        with watch(self.model, self._hops, keep_gradients=True) as seen:
            total, parts, _ = self.loss_of(self.predict(self.model, batch), batch)
        overlap = sum(
            (disagreement(calls[0]).sum() for calls in map(seen.__getitem__, self._hops)),
            start=total.new_zeros(()),
        )
        # The penalty is summed over rows, which are also the weight of a batch with hops.
        return Loss(total + self.penalty * overlap, {**parts, "overlap": overlap.detach()})

    def predict(self, model: HeadedEncoder, batch: RowBatch) -> Predicted:
        """The logits of the positions with a label."""
        with autocast(self.device, self.precision):
            encoded = model.encoder(batch.rows)
            logits = model.heads[self.head](encoded)
        found, lengths = encoded.states, batch.rows.lengths
        states = None if found is None else partial(inside, found, lengths)
        return Predicted(*decided(logits, batch.labels), states=states)

    def loss_of(self, predicted: Predicted, batch: RowBatch) -> Loss:
        """Summed cross-entropy; the part ``loss`` is without smoothing."""
        return loss_of_logits(predicted, self.label_smoothing)

    def split(self, batch: RowBatch, count: int, fewest: int = FEWEST) -> list[RowBatch]:
        """Split the rows; with a penalty, return the whole batch, because hops are watched."""
        return [batch] if self._hops else batch.split(count, fewest)


def decided(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The logits ``[N, C]`` of positions with a label, and their labels ``[N]``.

    Args:
        logits: ``[B, C]``, or ``[B, L, C]`` where tokens have labels.
        labels: as :class:`RowBatch` has them.
    """
    if labels.dim() == 1:
        return logits, labels
    real = labels > 0
    return logits[real], labels[real] - 1


class ClassificationTask(LabelTask[Labelled, Classifier]):
    """The training task of classifiers; the arguments are those of :class:`LabelTask`."""

    def _measure(self) -> Validation:
        found = self.reader.classify([read(example) for example in self.validation])
        gold = [example.label for example in self.validation]
        given = [one.label or self.reader.labels[0] for one in found]
        report = score_classification(gold, given, labels=self.reader.labels, worst=0)
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


def read(example: Labelled | Rated | MultiLabelled) -> Text:
    """The input of a predictor for an example."""
    return example.texts[0] if len(example.texts) == 1 else (example.texts[0], example.texts[1])


class TaggingTask(LabelTask[Tagged, Tagger]):
    """The training task of taggers; the arguments are those of :class:`LabelTask`."""

    @property
    def untagged(self) -> int:
        """The label of words without a tag."""
        return 0

    def _measure(self) -> Validation:
        found = self.reader.tag([example.words for example in self.validation])
        gold = [example.labels for example in self.validation]
        chosen = list(map(tagged_only, self.validation, found))
        report = score_tagging(gold, chosen, labels=self.reader.tags, worst=0)
        shown = [
            Sample(
                " ".join(example.words),
                _side_by_side(example.words, tags),
                _side_by_side(example.words, example.tags),
            )
            for example, tags in zip(self.validation[: self.samples], found, strict=False)
        ]
        figures = {"loss": self._surprise(), **report.figures()}
        if mark_spans(self.reader.tags):
            sides = zip(self.validation, found, strict=True)
            tags = [outside_if_untagged(example, own) for example, own in sides]
            right = [outside_if_untagged(example, example.tags) for example in self.validation]
            figures["span_f1"] = score_spans(right, tags).all_types.f1
        return Validation(figures, shown)

    def _surprise(self) -> float:
        """Mean −log p of tags (nats), over the windows that training uses."""
        numbers = {tag: number for number, tag in enumerate(self.reader.tags)}
        rows = [
            row
            for example in self.validation
            for row in tagged_rows(
                example,
                numbers,
                self.reader.vocabulary,
                self.reader.max_length,
                untagged=self.untagged,
            )
        ]
        items = [Item(line, 0, tokens) for line, (tokens, _) in enumerate(rows)]
        total = 0.0
        with ready(self.model, self.device):
            for batch in token_batches(items, 1, self.reader.batch_tokens):
                read = sequences_of([item.tokens for item in batch])
                # BEGIN and END have no tag.
                labels = padded([[0, *rows[item.line][1], 0] for item in batch], self.device)
                read = Sequences(*(part.to(self.device) for part in read))
                logits = self.model.heads[self.head](self.model.encoder(read))
                total += self._summed_surprise(logits.double(), labels)
        # Windows may overlap: a word counts in each of them.
        tagged = sum(0 < tag != self.untagged for _, tags in rows for tag in tags)
        return total / max(1, tagged)

    def _summed_surprise(self, logits: Tensor, labels: Tensor) -> float:
        """Summed −log p of tags ``[B, L]``, numbered as in :class:`RowBatch`."""
        return float(F.cross_entropy(*decided(logits, labels), reduction="sum"))
