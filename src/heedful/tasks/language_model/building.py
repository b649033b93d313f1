"""Encodes documents as a stream of tokens, and builds the training task of a language model."""

from pathlib import Path
from typing import Any, cast

from heedful.basics.notices import notice, once
from heedful.data.packing import PackedBatches
from heedful.data.store import Store
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
    return LanguageTask(
        model,
        _windows(run.set_folder(name) / "train", recipe, settings.batch_tokens),
        run.documents(name, "validation"),
        Generator(model, training.vocabulary, device=training.device, notify=once()),
        device=training.device,
        label_smoothing=settings.label_smoothing,
        precision=training.precision,
        samples=recipe.samples,
        seed=recipe.seed,
    )


def _windows(folder: Path, recipe: LanguageRecipe, tokens: int) -> WindowBatches | PackedBatches:
    rows = max(1, tokens // recipe.context)
    if recipe.windows != "packed":
        aligned = recipe.windows == "aligned"
        return WindowBatches(Stream(folder), recipe.context, rows, aligned=aligned)
    packed = PackedBatches(Store.open(folder), recipe.context, rows)
    alone, together = packed.padding(recipe.seed)
    notice(
        f"windows = 'packed': {together:.1%} of the rows is padding; {alone:.1%} with one document "
        "in each"
    )
    return packed
