"""The head of a regression: encoding texts with numbers, the layer, and the training task."""

from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from torch import nn

from heedful.basics.errors import UserError
from heedful.basics.notices import once
from heedful.data import columns
from heedful.data.examples import Rated
from heedful.data.vocabularies import SavedVocabulary
from heedful.evaluation.correlation import is_constant
from heedful.models.encoders import Classifier as OutputLayer
from heedful.models.encoders import HeadedEncoder
from heedful.tasks.regression.predictor import Regressor
from heedful.tasks.regression.training import RegressionTask
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import encode_texts, output_layer
from heedful.tasks.texts.part import Training


def encode(
    folder: Path, settings: Any, examples: Examples, vocabulary: SavedVocabulary, max_tokens: int
) -> dict[str, Any]:
    """Write the encoded rows of texts with numbers; returns facts about them.

    Raises:
        UserError: all numbers are equal, except for rounding.
    """
    numbers = [cast(Rated, example).value for example in examples.of("train")]
    mean = fmean(numbers)
    # Divided by the largest, no square is so small that it becomes 0.
    largest = max(abs(one - mean) for one in numbers) or 1.0
    deviation = largest * sqrt(fmean([((one - mean) / largest) ** 2 for one in numbers]))
    if is_constant(numbers) or not deviation:
        raise UserError(
            f"every training example of {examples.name} has the number {mean:g}; give examples "
            "with different numbers"
        )

    def scaled(one: Rated) -> float:
        return (one.value - mean) / deviation

    counted = encode_texts(folder, examples, scaled, columns.number(), vocabulary, max_tokens)
    return {**counted, "mean": mean, "deviation": deviation}


def layers(
    name: str, settings: Any, encoder: Any, labels: int, recipe: Any
) -> dict[str, nn.Module]:
    """The output layer."""
    return {name: output_layer(OutputLayer, encoder.pooled_dim, 1, recipe, "texts")}


def build_part(name: str, head: Any, training: Training) -> RegressionTask:
    """The task for the training loop."""
    run, settings, model = training.run, training.settings, cast(HeadedEncoder, training.model)
    facts = run.facts["sets"][name]
    reader = Regressor(
        model,
        training.vocabulary,
        mean=facts["mean"],
        deviation=facts["deviation"],
        head=name,
        device=training.device,
        notify=once(),
    )
    return RegressionTask(
        model,
        training.batches(name, "number"),
        run.rated(name, "validation"),
        reader,
        device=training.device,
        penalty=settings.penalty,
        precision=training.precision,
    )
