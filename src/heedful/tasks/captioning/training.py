"""The training task: the cross-entropy of the captions of each image.

Shapes: A images, N captions of an image, B captions of a batch, T target tokens.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.batching import FEWEST
from heedful.data.column_batch import ColumnBatch
from heedful.data.image_batches import images_of, varied
from heedful.data.store import Store
from heedful.evaluation.statistics import collect
from heedful.inference.inference_mode import ready
from heedful.models import ImageShape, Scenes
from heedful.training.column_task import ColumnTask
from heedful.training.protocol import Loss, Sample, Validation
from heedful.training.terms import (
    TeacherForced,
    Term,
    load_terms,
    modules_of,
    tensors_of,
    with_terms,
)

_AT_ONCE = 32


class Captions(NamedTuple):
    """The captions of a batch."""

    owners: Tensor
    """The image of each caption, ``[B]``."""
    target_in: Tensor
    """BEGIN and the tokens, ``[B, T]``."""
    labels: Tensor
    """The tokens and END, ``[B, T]``."""


def captions_of(batch: ColumnBatch) -> Captions:
    """All captions of a batch, one after the other."""
    tokens = batch["captions"].padded(PAD).long()  # [A, N, T - 1]
    found = (tokens != PAD).any(2)
    owners, texts = found.nonzero()[:, 0], tokens[found]
    lengths = (texts != PAD).sum(1, keepdim=True)
    edge = texts.new_full((len(texts), 1), PAD)
    labels = torch.cat([texts, edge], 1).scatter(1, lengths, END)
    return Captions(owners, torch.cat([edge + BEGIN - PAD, texts], 1), labels)


class CaptionTask(ColumnTask):
    """Trains a model that describes images.

    Args:
        model: the model to train, on ``device``.
        settings: ``[training]`` of the recipe.
        terms: additional losses on attention weights.
        stores: training data, and validation data or None.
        describe: finds the captions of images ``[A, H, W, C]``, in words.
        write: the text of tokens, in words.
        how: ``device`` and ``precision``.
    """

    by = ("image",)

    def __init__(
        self,
        model: Any,
        settings: Any,
        terms: Sequence[Term],
        stores: tuple[Store, Store | None],
        *,
        describe: Callable[[Tensor], list[str]],
        write: Callable[[Sequence[int]], str],
        **how: Any,
    ) -> None:
        super().__init__(model, stores[0], stores[1], settings.batch_tokens, **how)
        self.model: Any = model
        self.settings, self.terms = settings, tuple(terms)
        self.describe, self.write = describe, write

    def weight_of(self, batch: ColumnBatch) -> int:
        """The number of target tokens, END included."""
        return max(1, int((captions_of(batch).labels != PAD).sum()))

    def split(self, batch: Any, count: int, fewest: int = FEWEST) -> Sequence[Any]:
        """The rows in parts; the whole batch with terms, because terms watch the model."""
        return [batch] if self.terms else super().split(batch, count, fewest)

    def batch_loss(self, batch: ColumnBatch) -> Loss:
        """The cross-entropy of the target tokens, and the terms."""
        images, texts = images_of(batch), captions_of(batch)
        training = self.model.training
        terms = self.terms if training else ()
        smoothing = self.settings.label_smoothing if training else 0.0
        if training:
            images = self._varied(images)
        real = texts.labels != PAD
        scenes = Scenes(images, texts.owners)
        with watch(self.model, modules_of(terms), keep_gradients=True) as seen:
            total, exact = self.model.losses(scenes, texts.target_in, texts.labels, real, smoothing)
        loss = Loss(total, {"loss": exact.sum()}, {"loss": max(1, len(exact))})
        if not terms:
            return loss
        surprise = exact.new_zeros(real.shape)
        surprise[real] = exact
        return with_terms(loss, terms, TeacherForced(texts.labels, seen, surprise))

    def _varied(self, images: Tensor) -> Tensor:
        """Images changed at random; all frames of a clip in the same way."""
        shape: ImageShape = self.model.shape
        rows, frames = shape.rows, shape.frames
        beside = images.unflatten(1, (frames, rows)).permute(0, 2, 3, 1, 4).flatten(3)
        changed: Tensor = varied(beside, self.settings.shift, self.settings.flip)
        below: Tensor = changed.unflatten(3, (frames, -1)).permute(0, 3, 1, 2, 4).flatten(1, 2)
        return below

    def validate(self) -> Validation:
        """``loss`` in nats a token of all captions; BLEU of the descriptions of some images."""
        found = super().validate()
        most = self.settings.validation_images
        if self.held_out is None or not most:
            return found
        outputs: list[str] = []
        references: list[list[str]] = []
        with ready(self.model, self.device):
            for batch in self.held_out.once():
                images = images_of(batch)[: most - len(outputs)]
                for part in images.split(_AT_ONCE):
                    outputs += self.describe(part.to(self.device))
                references += self._texts(batch)[: len(images)]
                if len(outputs) >= most:
                    break
        bleu = collect("bleu", outputs, references, tokenise="none", lowercase=True)
        shown = [
            Sample(f"image {number}", output, one[0])
            for number, (output, one) in enumerate(
                zip(outputs[: self.settings.samples], references, strict=False), 1
            )
        ]
        figures = {**found.figures, "bleu": bleu.value_of_sum(bleu.values.sum(0))}
        return Validation(figures, shown)

    def _texts(self, batch: ColumnBatch) -> list[list[str]]:
        """The captions of each image, as they are encoded."""
        tokens = batch["captions"].padded(PAD).tolist()
        return [[self.write(one) for one in own if any(one)] for own in tokens]

    def tensors(self) -> dict[str, Tensor]:
        """The state of the terms."""
        return tensors_of(self.terms)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from :meth:`tensors`."""
        load_terms(self.terms, tensors)
