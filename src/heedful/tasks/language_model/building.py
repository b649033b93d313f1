"""Encodes documents as a stream of tokens, and builds the training task of a language model."""

from pathlib import Path
from typing import Any, cast

from heedful.basics.notices import once
from heedful.data.streams import Stream, WindowBatches, write_stream
from heedful.data.vocabularies import SavedVocabulary
from heedful.inference.generator import Generator
from heedful.models.language import LanguageModel
from heedful.tasks.language_model.training import LanguageTask
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.labelled_rows import seen
from heedful.tasks.texts.part import Training
from heedful.tasks.texts.recipe import LanguageRecipe


def encode(folder: Path, examples: Examples, vocabulary: SavedVocabulary) -> dict[str, Any]:
    """Write the documents as one stream of tokens; returns facts about it."""
    texts = (example.text for example in examples.of("train"))
    encoded = (vocabulary.encode(text) for text in seen(texts, "documents"))
    return {"train": write_stream(encoded, folder, vocabulary.size), "unit": "tokens"}


def build_part(name: str, recipe: LanguageRecipe, training: Training) -> LanguageTask:
    """The task for the training loop."""
    run, settings, model = training.run, training.settings, cast(LanguageModel, training.model)
    windows = WindowBatches(
        Stream(run.set_folder(name) / "train"),
        recipe.context,
        max(1, settings.batch_tokens // recipe.context),
        aligned=recipe.windows == "aligned",
    )
    return LanguageTask(
        model,
        windows,
        run.documents(name, "validation"),
        Generator(model, training.vocabulary, device=training.device, notify=once()),
        device=training.device,
        label_smoothing=settings.label_smoothing,
        precision=training.precision,
        samples=recipe.samples,
        seed=recipe.seed,
    )
