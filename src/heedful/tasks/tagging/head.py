"""The head of a tagger: encoding of tagged sentences, layers, and the training task."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from torch import nn

from heedful.basics.notices import once
from heedful.data import columns
from heedful.data.examples import Tagged
from heedful.data.vocabularies import SavedVocabulary
from heedful.inference.tagger import Tagger
from heedful.models.encoders import ChainTagger, HeadedEncoder
from heedful.models.encoders import Tagger as TaggingLayer
from heedful.tasks.tagging.chain import ChainTask
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import encode_rows, output_layer
from heedful.tasks.texts.part import Training
from heedful.tasks.texts.rows import tagged_rows
from heedful.tasks.texts.training import TaggingTask


def encode(
    folder: Path, settings: Any, examples: Examples, vocabulary: SavedVocabulary, max_tokens: int
) -> dict[str, Any]:
    """Write the encoded rows of tagged sentences; returns facts about them."""
    numbers = {tag: number for number, tag in enumerate(examples.labels)}
    # The words of a chain are in a row, with tag or without.
    untagged = len(numbers) + 1 if settings.crf else 0
    codecs = {
        "tokens": columns.tokens(vocabulary.size),
        "labels": columns.tokens(len(numbers) + (2 if settings.crf else 1)),
    }

    def rows(example: Tagged) -> Iterator[tuple[list[int], list[int]]]:
        return tagged_rows(example, numbers, vocabulary, max_tokens, untagged=untagged)

    return {**encode_rows(folder, examples, rows, codecs, max_tokens), "unit": "sentences"}


def layers(
    name: str, settings: Any, encoder: Any, labels: int, recipe: Any
) -> dict[str, nn.Module]:
    """The tagging layer."""
    layer = ChainTagger if settings.crf else TaggingLayer
    return {name: output_layer(layer, encoder.dim, labels, recipe, "tokens")}


def build_part(name: str, head: Any, training: Training) -> TaggingTask:
    """The task for the training loop."""
    run, settings, model = training.run, training.settings, cast(HeadedEncoder, training.model)
    tagger = Tagger(
        model,
        training.vocabulary,
        run.labels(name),
        head=name,
        scheme=head.data.scheme,
        device=training.device,
        notify=once(),
    )
    make = ChainTask if head.crf else TaggingTask
    return make(
        model,
        training.batches(name, "token"),
        run.tagged(name, "validation"),
        tagger,
        device=training.device,
        label_smoothing=settings.label_smoothing,
        precision=training.precision,
    )
