"""Converts language models to runs, and runs to such models; and parts for all single texts."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data.imported_vocabulary import ImportedVocabulary, count_rows
from heedful.data.tokeniser_files import find_special, read_files
from heedful.data.vocabularies import SavedVocabulary, VocabularySettings
from heedful.interop.exported import GENERATION, Exported, as_json
from heedful.interop.fields import MOST_ROWS, Fields
from heedful.interop.folder import CONFIG, read_weights
from heedful.interop.layouts import gpt, llama
from heedful.interop.layouts.entries import Places
from heedful.interop.own_vocabularies import tokeniser_files
from heedful.interop.tokeniser_class import check_tokeniser
from heedful.models.gpt import GptSettings
from heedful.tasks.texts.recipe import (
    DocumentData,
    LanguageRecipe,
    TextRecipe,
)
from heedful.tasks.texts.run import TextRun


class ImportedText(NamedTuple):
    """The parts of an imported run."""

    recipe: TextRecipe
    vocabulary: ImportedVocabulary
    weights: dict[str, Tensor]
    labels: list[str]
    heads: list[str]
    """The heads that the file contains, by task."""
    outputs: Mapping[str, float] = MappingProxyType({})
    """Further facts about the outputs of the head, for ``run.json``."""


def read_gpt(folder: Path, config: dict[str, Any]) -> ImportedText:
    """A GPT-2's recipe, vocabulary and weights.

    Raises:
        UserError: a field is not supported, a file is missing or damaged, or they contradict each
            other.
    """
    where = str(folder)
    settings = gpt.settings_of(config, f"{where}/{CONFIG}")
    vocabulary = read_vocabulary(folder, config, encoder=False)
    weights = gpt.import_tensors(read_weights(folder), settings, vocabulary.places, where)
    return _language_model(where, settings, vocabulary, weights)


def read_llama(folder: Path, config: dict[str, Any]) -> ImportedText:
    """The recipe, vocabulary and weights of a Llama, Mistral or Qwen 2.

    Raises:
        UserError: as for :func:`read_gpt`.
    """
    where = str(folder)
    vocabulary = read_vocabulary(folder, config, encoder=False)
    begin = vocabulary.places[BEGIN] is not None
    settings = llama.settings_of(config, f"{where}/{CONFIG}", begin=begin)
    weights = llama.import_tensors(read_weights(folder), settings, vocabulary.places, where)
    return _language_model(where, settings, vocabulary, weights)


def _language_model(
    where: str, settings: GptSettings, vocabulary: ImportedVocabulary, weights: dict[str, Tensor]
) -> ImportedText:
    recipe = LanguageRecipe(
        data=DocumentData(train=[where]),
        tokeniser=vocabulary_settings(vocabulary),
        model=settings,
        context=min(128, settings.max_length),
    )
    return ImportedText(recipe, vocabulary, weights, [], [])


def read_vocabulary(
    folder: Path, config: Mapping[str, Any], *, encoder: bool
) -> ImportedVocabulary:
    where = str(folder)
    rows = Fields(config, f"{where}/{CONFIG}").count("vocab_size", most=MOST_ROWS)
    files = read_files(folder)
    check_tokeniser(files, config, where)
    return ImportedVocabulary(files, find_special(files, where, encoder=encoder), rows, where)


def vocabulary_settings(vocabulary: ImportedVocabulary) -> VocabularySettings:
    return VocabularySettings(
        kind="imported", vocabulary_size=max(vocabulary.size, 5), mask=vocabulary.mask is not None
    )


def labels_of(config: Mapping[str, Any], count: int, where: str) -> list[str]:
    """The names of the classes, by index."""
    given = config.get("id2label")
    if given is None:
        return [f"LABEL_{number}" for number in range(count)]
    if not isinstance(given, dict):
        raise UserError(f"{where}: id2label = {json.dumps(given)}: expected numbers and names")
    named = {str(number): name for number, name in given.items()}
    labels = [named.get(str(number)) for number in range(count)]
    if len(named) != count or not all(isinstance(label, str) for label in labels):
        raise UserError(f"{where}: id2label has {len(named)} names, the classifier {count} classes")
    if len(set(labels)) < count:
        raise UserError(f"{where}: id2label contains a name twice; names must be unique")
    return [str(label) for label in labels]


def write_gpt(run: TextRun, weights: dict[str, Tensor], head: str | None) -> Exported:
    """Export a language model's run: as a GPT-2; with RMS norm as a Llama, Mistral or Qwen 2.

    Args:
        run: the run, whose model is a ``gpt``.
        weights: the weights of the checkpoint to export.
        head: not used, because there are none.

    Raises:
        UserError: the layout does not support the model; the message gives the reason.
    """
    settings = cast(GptSettings, cast(LanguageRecipe, run.recipe).model)
    layout = llama if settings.norm == "rms" else gpt
    imported = (run.facts.get("imported") or {}).get("layout")
    try:
        config = gpt.config_of(settings) if layout is gpt else llama.config_of(settings, imported)
    except UserError as error:
        raise UserError(f"{run.path}: no Hugging Face layout for it: {error}") from error
    vocabulary = run.vocabulary()
    places, special = places_and_special(vocabulary)
    end = special[END]
    begin = special[BEGIN] if settings.begin else end
    config |= {
        "vocab_size": count_rows(places),
        "bos_token_id": begin,
        "eos_token_id": end,
        "pad_token_id": special[PAD],
    }
    files = vocabulary_files(
        run, vocabulary, settings.max_length, around=False, begin=settings.begin
    )
    if config["model_type"] == "qwen2" and not isinstance(vocabulary, ImportedVocabulary):
        notice(
            f"{run.path}: AutoTokenizer uses Qwen 2's own rules for this layout, not these; load "
            "the tokeniser with PreTrainedTokenizerFast.from_pretrained"
        )
    never = [[row] for row in special[:END] if row is not None]
    generation: dict[str, Any] = {"bos_token_id": begin, "eos_token_id": end}
    generation |= {"bad_words_ids": never} if never else {}
    files[GENERATION] = as_json(generation)
    return Exported(config, layout.export_tensors(weights, settings, places), files)


def places_and_special(vocabulary: SavedVocabulary) -> tuple[Places, list[int | None]]:
    """The rows of heedful's symbols in the exported table, and the first four of them."""
    if isinstance(vocabulary, ImportedVocabulary):
        return vocabulary.places, list(vocabulary.places[: END + 1])
    return range(vocabulary.size), [PAD, UNKNOWN, BEGIN, END]


def vocabulary_files(
    run: TextRun,
    vocabulary: SavedVocabulary,
    longest: int,
    *,
    around: bool,
    begin: bool = False,
    second: int = 1,
) -> dict[str, bytes]:
    """The files of a run's tokeniser; arguments as for `tokeniser_files`."""
    if isinstance(vocabulary, ImportedVocabulary):
        return dict(vocabulary.files)
    return tokeniser_files(
        vocabulary, longest, around=around, where=str(run.path), begin=begin, second=second
    )
