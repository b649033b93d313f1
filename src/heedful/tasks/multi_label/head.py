"""The head of several labels: encoding of labelled texts, the layer, and the training task."""

from functools import partial
from pathlib import Path
from typing import Any, cast

from torch import nn

from heedful.basics.notices import once
from heedful.data import columns
from heedful.data.examples import MultiLabelled
from heedful.data.vocabularies import SavedVocabulary
from heedful.models.encoders import HeadedEncoder
from heedful.models.label_set_layer import LabelSetLayer
from heedful.tasks.multi_label.predictor import MultiLabelClassifier
from heedful.tasks.multi_label.training import MultiLabelTask
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import encode_texts, output_layer
from heedful.tasks.texts.part import Training


def encode(
    folder: Path, settings: Any, examples: Examples, vocabulary: SavedVocabulary, max_tokens: int
) -> dict[str, Any]:
    """Write the encoded rows of labelled texts; returns facts about them."""
    known = examples.labels

    def has(one: MultiLabelled) -> list[float]:
        return [float(label in one.labels) for label in known]

    labels = columns.number(len(known))
    return encode_texts(folder, examples, has, labels, vocabulary, max_tokens)


def layers(
    name: str, settings: Any, encoder: Any, labels: int, recipe: Any
) -> dict[str, nn.Module]:
    """The output layer, with one output for each label."""
    layer = partial(LabelSetLayer, threshold=settings.fixed)
    return {name: output_layer(layer, encoder.pooled_dim, labels, recipe, "texts")}


def build_part(name: str, head: Any, training: Training) -> MultiLabelTask:
    """The task for the training loop."""
    run, settings, model = training.run, training.settings, cast(HeadedEncoder, training.model)
    reader = MultiLabelClassifier(
        model,
        training.vocabulary,
        run.labels(name),
        head=name,
        device=training.device,
        notify=once(),
    )
    return MultiLabelTask(
        model,
        training.batches(name, "several"),
        run.multi_labelled(name, "validation"),
        reader,
        device=training.device,
        penalty=settings.penalty,
        precision=training.precision,
    )
