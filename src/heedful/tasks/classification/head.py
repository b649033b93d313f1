"""The head of a classifier: encoding labelled texts, layers, and the training task."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from torch import nn

from heedful.basics.notices import once
from heedful.basics.symbols import END
from heedful.data import columns
from heedful.data.examples import Labelled
from heedful.data.vocabularies import SavedVocabulary
from heedful.inference.classifier import Classifier
from heedful.inference.text_reader import rows_of
from heedful.models.encoders import Classifier as ClassificationLayer
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import encode_rows, output_layer
from heedful.tasks.texts.part import Training
from heedful.tasks.texts.rows import RowBatches
from heedful.tasks.texts.training import ClassificationTask


def encode(
    folder: Path, settings: Any, examples: Examples, vocabulary: SavedVocabulary, max_tokens: int
) -> dict[str, Any]:
    """Write the encoded rows of labelled texts; returns facts about them."""
    numbers = {label: number for number, label in enumerate(examples.labels)}
    codecs = {
        "tokens": columns.tokens(vocabulary.size),
        "labels": columns.label(len(numbers)),
    }

    def rows(example: Labelled) -> Iterator[tuple[list[int], int]]:
        return _rows(example, numbers, vocabulary, max_tokens)

    return {**encode_rows(folder, examples, rows, codecs, max_tokens), "unit": "texts"}


def _rows(
    example: Labelled, numbers: Mapping[str, int], vocabulary: SavedVocabulary, limit: int
) -> Iterator[tuple[list[int], int]]:
    """A row's tokens without the first BEGIN and the last END, and its label."""
    tokens = [vocabulary.encode(text) for text in example.texts]
    for row in rows_of(tokens, limit):
        joined = row.first if row.second is None else [*row.first, END, *row.second]
        yield joined, numbers[example.label]


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
        RowBatches(
            run.set_folder(name) / "train",
            settings.batch_tokens,
            labels="row",
            **training.reading(name),
        ),
        run.labelled(name, "validation"),
        classifier,
        device=training.device,
        label_smoothing=settings.label_smoothing,
        penalty=settings.penalty,
        precision=training.precision,
    )
