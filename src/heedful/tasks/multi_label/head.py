"""The head of several labels: encoding of labelled texts, the layer, and the training task."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

from torch import nn

from heedful.basics.notices import once
from heedful.basics.symbols import END
from heedful.data import columns
from heedful.data.examples import MultiLabelled
from heedful.data.vocabularies import SavedVocabulary
from heedful.inference.text_reader import rows_of
from heedful.models.encoders import HeadedEncoder
from heedful.models.label_set_layer import LabelSetLayer
from heedful.tasks.multi_label.predictor import MultiLabelClassifier
from heedful.tasks.multi_label.training import MultiLabelTask
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import encode_rows, output_layer
from heedful.tasks.texts.part import Training
from heedful.tasks.texts.rows import RowBatches


def encode(
    folder: Path, settings: Any, examples: Examples, vocabulary: SavedVocabulary, max_tokens: int
) -> dict[str, Any]:
    """Write the encoded rows of labelled texts; returns facts about them."""
    known = examples.labels
    codecs = {"tokens": columns.tokens(vocabulary.size), "labels": columns.number(len(known))}

    def rows(example: MultiLabelled) -> Iterator[tuple[list[int], list[float]]]:
        tokens = [vocabulary.encode(text) for text in example.texts]
        has = [float(label in example.labels) for label in known]
        for row in rows_of(tokens, max_tokens):
            yield (row.first if row.second is None else [*row.first, END, *row.second]), has

    return {**encode_rows(folder, examples, rows, codecs, max_tokens), "unit": "texts"}


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
        RowBatches(
            run.set_folder(name) / "train",
            settings.batch_tokens,
            labels="several",
            **training.reading(name),
        ),
        run.multi_labelled(name, "validation"),
        reader,
        device=training.device,
        penalty=settings.penalty,
        precision=training.precision,
    )
