"""The head of a classifier: encoding labelled texts, layers, and the training task."""

from pathlib import Path
from typing import Any, cast

from torch import nn

from heedful.basics.notices import once
from heedful.data import columns
from heedful.data.vocabularies import SavedVocabulary
from heedful.inference.classifier import Classifier
from heedful.models.encoders import Classifier as ClassificationLayer
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import encode_texts, output_layer
from heedful.tasks.texts.part import Training
from heedful.tasks.texts.training import ClassificationTask


def encode(
    folder: Path, settings: Any, examples: Examples, vocabulary: SavedVocabulary, max_tokens: int
) -> dict[str, Any]:
    """Write the encoded rows of labelled texts; returns facts about them."""
    numbers = {label: number for number, label in enumerate(examples.labels)}
    labels = columns.label(len(numbers))
    return encode_texts(
        folder, examples, lambda one: numbers[one.label], labels, vocabulary, max_tokens
    )


def layers(
    name: str, settings: Any, encoder: Any, labels: int, recipe: Any
) -> dict[str, nn.Module]:
    """The classification layer."""
    width = encoder.pooled_dim
    return {name: output_layer(ClassificationLayer, width, labels, recipe, "texts")}


def build_part(name: str, head: Any, training: Training) -> ClassificationTask:
    """The task for the training loop."""
    run, settings, model = training.run, training.settings, cast(HeadedEncoder, training.model)
    classifier = Classifier(
        model,
        training.vocabulary,
        run.labels(name),
        head=name,
        device=training.device,
        notify=once(),
    )
    return ClassificationTask(
        model,
        training.batches(name, "row"),
        run.labelled(name, "validation"),
        classifier,
        device=training.device,
        label_smoothing=settings.label_smoothing,
        penalty=settings.penalty,
        precision=training.precision,
    )
