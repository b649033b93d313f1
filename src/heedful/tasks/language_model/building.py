"""Encodes documents as a stream of tokens, and builds the training task of a language model."""

from pathlib import Path
from typing import Any, cast

from heedful.basics.notices import notice, once
from heedful.data.packing import PackedBatches
from heedful.data.stream_encoder import StreamEncoder
from heedful.data.streams import Stream, WindowBatches
from heedful.data.vocabularies import SavedVocabulary
from heedful.inference.generator import Generator
from heedful.models.language import LanguageModel
from heedful.tasks.language_model.training import LanguageTask
from heedful.tasks.texts.examples import Examples
from heedful.tasks.texts.part import Training
from heedful.tasks.texts.recipe import LanguageRecipe
from heedful.tasks.texts.sentences import encode_texts


def encode(folder: Path, examples: Examples, vocabulary: SavedVocabulary) -> dict[str, Any]:
    """Write the documents as one stream of tokens; returns facts about it."""
    counts = encode_texts(examples, "train", folder, StreamEncoder, vocabulary)
    return {"train": counts["tokens"], "unit": "tokens"}


def build_part(name: str, recipe: LanguageRecipe, training: Training) -> LanguageTask:
    """The task for the training loop."""
    run, settings, model = training.run, training.settings, cast(LanguageModel, training.model)
    return LanguageTask(
        model,
        _windows(name, recipe, training),
        run.documents(name, "validation"),
        Generator(model, training.vocabulary, device=training.device, notify=once()),
        device=training.device,
        label_smoothing=settings.label_smoothing,
        precision=training.precision,
        samples=recipe.samples,
        seed=recipe.seed,
    )


def _windows(
    name: str, recipe: LanguageRecipe, training: Training
) -> WindowBatches | PackedBatches:
    folder, read = training.run.set_folder(name) / "train", training.reading(name)
    rows = max(1, training.settings.batch_tokens // recipe.context)
    stream, window = Stream(folder, verified=read["verified"]), read["window"]
    if recipe.windows != "packed":
        aligned = recipe.windows == "aligned"
        return WindowBatches(stream, recipe.context, rows, aligned=aligned, window=window)
    packed = PackedBatches(stream.store, recipe.context, rows, window=window)
    alone, together = packed.padding(recipe.seed)
    notice(
        f"windows = 'packed': {together:.1%} of the rows is padding; {alone:.1%} with one document "
        "in each"
    )
    return packed
