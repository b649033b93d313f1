"""Converts BERT models and language models to runs, and runs to such models."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
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
from heedful.interop.layouts import bert, gpt, llama
from heedful.interop.layouts.bert import BertShape
from heedful.interop.layouts.entries import Places
from heedful.interop.own_vocabularies import tokeniser_files
from heedful.interop.tokeniser_class import check_tokeniser
from heedful.models.bert import BertSettings
from heedful.models.gpt import GptSettings
from heedful.tasks.texts.recipe import (
    ClassificationRecipe,
    DocumentData,
    EncoderRecipe,
    LabelledData,
    LanguageRecipe,
    MaskedRecipe,
    MaskingSettings,
    TaggedData,
    TaggingRecipe,
    TextRecipe,
)
from heedful.tasks.texts.run import TextRun

_MASKED, _NEXT = "masked", "masked_next"


class ImportedText(NamedTuple):
    """The parts of an imported run."""

    recipe: TextRecipe
    vocabulary: ImportedVocabulary
    weights: dict[str, Tensor]
    labels: list[str]
    heads: list[str]
    """The heads of `bert.HEADS` that the file contains."""


def read_bert(folder: Path, config: dict[str, Any], *, pairs: bool = False) -> ImportedText:
    """A BERT's recipe, vocabulary and weights; its head determines the task.

    Args:
        folder: contains the files.
        config: the content of ``config.json``.
        pairs: whether a classifier reads pairs of texts.

    Raises:
        UserError: a field is not supported, a file is missing or damaged, or they contradict each
            other.
    """
    where = str(folder)
    settings = bert.settings_of(config, f"{where}/{CONFIG}")
    vocabulary = _vocabulary(folder, config)
    tensors = read_weights(folder)
    shape = bert.shape_of(tensors, config)
    found = bert.import_tensors(tensors, settings, vocabulary.places, shape, where)
    weights = _renamed(found, {"next_sentence": _NEXT})
    labels: list[str] = []
    if shape.heads.get("classification") == 1:
        raise UserError(
            f"{where}: the classifier has one output (num_labels = 1), so it predicts a number; "
            "regression is not supported: import a classifier with at least two classes"
        )
    for head in ("classification", "tagging"):
        if head in shape.heads:
            labels = _labels(config, shape.heads[head], f"{where}/{CONFIG}")
    if not shape.pooler:
        notice(f"{where}: no pooler in the file; it is initialised randomly and needs training")
    if not labels and _MASKED not in shape.heads:
        notice(
            f"{where}: no head for masked tokens in the file; it is initialised randomly and needs "
            "training"
        )
        weights |= _fresh_head(settings.hidden_size, vocabulary.size)
    before_head = config.get("classifier_dropout")
    dropout = settings.dropout if before_head is None else before_head
    recipe = _encoder_recipe(folder, settings, vocabulary, shape, dropout, pairs=pairs)
    return ImportedText(recipe, vocabulary, weights, labels, sorted(shape.heads))


def _encoder_recipe(
    folder: Path,
    settings: BertSettings,
    vocabulary: ImportedVocabulary,
    shape: BertShape,
    head_dropout: float,
    *,
    pairs: bool,
) -> EncoderRecipe:
    given: dict[str, Any] = {
        "tokeniser": _vocabulary_settings(vocabulary),
        "model": settings,
        "max_tokens": min(128, settings.max_length),
        "head_dropout": head_dropout,
    }
    train = [str(folder)]
    if "classification" in shape.heads:
        columns = {"text": ["first", "second"]} if pairs else {}
        return ClassificationRecipe(data=LabelledData(train=train, **columns), **given)
    if "tagging" in shape.heads:
        return TaggingRecipe(data=TaggedData(train=train), **given)
    if vocabulary.mask is None:
        raise UserError(
            f"{folder}: the tokeniser has no mask_token, which a model without a classification or "
            "tagging head needs; set it in tokenizer_config.json"
        )
    masking = MaskingSettings(next_sentence="next_sentence" in shape.heads)
    return MaskedRecipe(data=DocumentData(train=train), masking=masking, **given)


def read_gpt(folder: Path, config: dict[str, Any]) -> ImportedText:
    """A GPT-2's recipe, vocabulary and weights.

    Raises:
        UserError: a field is not supported, a file is missing or damaged, or they contradict each
            other.
    """
    where = str(folder)
    settings = gpt.settings_of(config, f"{where}/{CONFIG}")
    vocabulary = _vocabulary(folder, config)
    weights = gpt.import_tensors(read_weights(folder), settings, vocabulary.places, where)
    return _language_model(where, settings, vocabulary, weights)


def read_llama(folder: Path, config: dict[str, Any]) -> ImportedText:
    """The recipe, vocabulary and weights of a Llama, Mistral or Qwen 2.

    Raises:
        UserError: as for :func:`read_gpt`.
    """
    where = str(folder)
    vocabulary = _vocabulary(folder, config)
    begin = vocabulary.places[BEGIN] is not None
    settings = llama.settings_of(config, f"{where}/{CONFIG}", begin=begin)
    weights = llama.import_tensors(read_weights(folder), settings, vocabulary.places, where)
    return _language_model(where, settings, vocabulary, weights)


def _language_model(
    where: str, settings: GptSettings, vocabulary: ImportedVocabulary, weights: dict[str, Tensor]
) -> ImportedText:
    recipe = LanguageRecipe(
        data=DocumentData(train=[where]),
        tokeniser=_vocabulary_settings(vocabulary),
        model=settings,
        context=min(128, settings.max_length),
    )
    return ImportedText(recipe, vocabulary, weights, [], [])


def _vocabulary(folder: Path, config: Mapping[str, Any]) -> ImportedVocabulary:
    where = str(folder)
    rows = Fields(config, f"{where}/{CONFIG}").count("vocab_size", most=MOST_ROWS)
    files = read_files(folder)
    check_tokeniser(files, config, where)
    return ImportedVocabulary(files, find_special(files, where), rows, where)


def _vocabulary_settings(vocabulary: ImportedVocabulary) -> VocabularySettings:
    return VocabularySettings(
        kind="imported", vocabulary_size=max(vocabulary.size, 5), mask=vocabulary.mask is not None
    )


def _labels(config: Mapping[str, Any], count: int, where: str) -> list[str]:
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


def _fresh_head(dim: int, size: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    dense = torch.empty(dim, dim).normal_(0.0, 0.02, generator=generator)
    return {
        f"heads.{_MASKED}.dense.weight": dense,
        f"heads.{_MASKED}.dense.bias": torch.zeros(dim),
        f"heads.{_MASKED}.norm.weight": torch.ones(dim),
        f"heads.{_MASKED}.norm.bias": torch.zeros(dim),
        f"heads.{_MASKED}.bias": torch.zeros(size),
    }


def _renamed(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Rename heads."""
    renamed = {}
    for key, tensor in tensors.items():
        parts = key.split(".")
        if parts[0] == "heads":
            parts[1] = names.get(parts[1], parts[1])
        renamed[".".join(parts)] = tensor
    return renamed


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
    places, special = _places(vocabulary)
    end = special[END]
    begin = special[BEGIN] if settings.begin else end
    config |= {
        "vocab_size": count_rows(places),
        "bos_token_id": begin,
        "eos_token_id": end,
        "pad_token_id": special[PAD],
    }
    files = _tokeniser_files(run, vocabulary, settings.max_length, around=False)
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


def write_bert(run: TextRun, weights: dict[str, Tensor], head: str | None) -> Exported:
    """Export an encoder's run as a BERT with one of its heads.

    Args:
        run: the run, whose model is a ``bert``.
        weights: the weights of the checkpoint to export.
        head: the head to export, for a multi-task run.

    Raises:
        UserError: there are several heads and none is named, or the vocabulary has no layout.
    """
    recipe = cast(EncoderRecipe, run.recipe)
    settings = cast(BertSettings, recipe.model)
    vocabulary = run.vocabulary()
    name = _chosen_head(run, recipe, head)
    task: str = recipe.heads()[name].task
    labels = run.labels(name) if task != _MASKED else []
    heads = {task: len(labels)}
    if f"heads.{name}_next.output.weight" in weights:
        heads["next_sentence"] = 2
    if (kept := (run.facts.get("imported") or {}).get("heads")) is not None:
        heads = {head: count for head, count in heads.items() if head in kept}
    shape = bert.shape_for(heads)
    places, special = _places(vocabulary)
    config = bert.config_of(settings, shape) | {
        "vocab_size": count_rows(places),
        "pad_token_id": special[PAD],
        "classifier_dropout": recipe.head_dropout if labels else None,
    }
    if labels:
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    own = _renamed(weights, {name: task, f"{name}_next": "next_sentence"})
    files = _tokeniser_files(run, vocabulary, settings.max_length, around=True)
    return Exported(config, bert.export_tensors(own, settings, places, shape), files)


def _chosen_head(run: TextRun, recipe: EncoderRecipe, head: str | None) -> str:
    names = list(recipe.heads())
    if head is None and len(names) == 1:
        return names[0]
    if head in names:
        return str(head)
    missing = f"no head '{head}'" if head is not None else "several heads"
    raise UserError(f"{run.path} has {missing}: choose one (--head {', --head '.join(names)})")


def _places(vocabulary: SavedVocabulary) -> tuple[Places, list[int | None]]:
    """The rows of heedful's symbols in the exported table, and the first four of them."""
    if isinstance(vocabulary, ImportedVocabulary):
        return vocabulary.places, list(vocabulary.places[: END + 1])
    return range(vocabulary.size), [PAD, UNKNOWN, BEGIN, END]


def _tokeniser_files(
    run: TextRun, vocabulary: SavedVocabulary, longest: int, *, around: bool
) -> dict[str, bytes]:
    if isinstance(vocabulary, ImportedVocabulary):
        return dict(vocabulary.files)
    return tokeniser_files(vocabulary, longest, around=around, where=str(run.path))
