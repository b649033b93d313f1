"""Converts XLNet models to runs, and runs to such models."""

import json
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.imported_vocabulary import ImportedVocabulary, count_rows
from heedful.interop.exported import Exported, as_json
from heedful.interop.folder import CONFIG, read_weights
from heedful.interop.layouts import xlnet
from heedful.interop.texts import (
    ImportedText,
    labels_of,
    places_and_special,
    read_vocabulary,
    vocabulary_files,
    vocabulary_settings,
)
from heedful.models.xlnet import XLNetSettings
from heedful.tasks.permutation.recipe import PermutationRecipe, PermutationSettings
from heedful.tasks.texts.recipe import (
    ClassificationRecipe,
    DocumentData,
    EncoderRecipe,
    LabelledData,
    TaggedData,
    TaggingRecipe,
)
from heedful.tasks.texts.run import TextRun


def read_xlnet(folder: Path, config: dict[str, Any], *, pairs: bool = False) -> ImportedText:
    """An XLNet's recipe, vocabulary and weights; its head determines the task.

    Args:
        folder: contains the files.
        config: the content of ``config.json``.
        pairs: whether a classifier reads pairs of texts.

    Raises:
        UserError: a field is not supported, a file is missing or damaged, or they contradict each
            other.
    """
    where = str(folder)
    settings = xlnet.settings_of(config, f"{where}/{CONFIG}")
    vocabulary = read_vocabulary(folder, config, encoder=True)
    tensors = read_weights(folder)
    shape = xlnet.shape_of(tensors)
    xlnet.require_classes(shape, where)
    weights = xlnet.import_tensors(tensors, settings, vocabulary.places, shape, where)
    labels = labels_of(config, shape.classes, f"{where}/{CONFIG}") if shape.classes else []
    if shape.head != "classification":
        notice(
            f"{where}: no layer for a text's vector in the file; it is initialised randomly and "
            "needs training"
        )
    if shape.head is None:
        notice(f"{where}: no head in the file; the output bias of tokens is zero")
        weights["heads.permutation.bias"] = torch.zeros(vocabulary.size)
    given: dict[str, Any] = {
        "tokeniser": vocabulary_settings(vocabulary),
        "model": settings,
        "head_dropout": _share(config.get("summary_last_dropout"), settings.dropout),
    }
    recipe: EncoderRecipe
    if shape.head == "classification":
        columns = {"text": ["first", "second"]} if pairs else {}
        recipe = ClassificationRecipe(data=LabelledData(train=[where], **columns), **given)
    elif shape.head == "tagging":
        recipe = TaggingRecipe(data=TaggedData(train=[where]), **given)
    elif vocabulary.mask is None:
        raise UserError(
            f"{folder}: the tokeniser has no mask_token, which a model without a classification or "
            "tagging head needs; set it in tokenizer_config.json"
        )
    else:
        orders = PermutationSettings(pairs=False)
        recipe = PermutationRecipe(data=DocumentData(train=[where]), permutation=orders, **given)
    heads = [] if shape.head is None else [shape.head]
    return ImportedText(recipe, vocabulary, weights, labels, list(heads))


def _share(given: Any, usual: float) -> float:
    is_share = isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < 1
    return float(given) if is_share else usual


def write_xlnet(run: TextRun, weights: dict[str, Tensor], head: str | None) -> Exported:
    """Export an encoder's run as an XLNet with one of its heads.

    Args:
        run: the run, whose model is an ``xlnet``.
        weights: the weights of the checkpoint to export.
        head: the head to export, for a multi-task run.

    Raises:
        UserError: there are several heads and none is named, or the layout has no such head.
    """
    recipe = cast(EncoderRecipe, run.recipe)
    settings = cast(XLNetSettings, recipe.model)
    vocabulary = run.vocabulary()
    name = _chosen_head(run, recipe, head)
    task = str(recipe.heads()[name].task)
    labels = run.labels(name) if task in ("classification", "tagging") else []
    kept = (run.facts.get("imported") or {}).get("heads")
    own = None if kept is not None and task not in kept else cast(xlnet.Head, task)
    shape = xlnet.XLNetShape(own, len(labels))
    if settings.dropout != settings.attention_dropout:
        notice(
            f"{run.path}: the layout has one dropout, {settings.dropout}; attention_dropout = "
            f"{settings.attention_dropout} is left out, which matters for further training only"
        )
    places, special = places_and_special(vocabulary)
    config = xlnet.config_of(settings, shape) | {
        "vocab_size": count_rows(places),
        "pad_token_id": special[PAD],
    }
    if "imported" not in run.facts:  # symbols of XLNet's own that the model does not use
        config |= {"bos_token_id": special[BEGIN], "eos_token_id": special[END]}
    if labels:
        config["summary_last_dropout"] = recipe.head_dropout
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    begin = f"heads.{name}."
    own_names = {
        f"heads.{task}.{key.removeprefix(begin)}" if key.startswith(begin) else key: tensor
        for key, tensor in weights.items()
    }
    files = vocabulary_files(run, vocabulary, settings.max_length, around=True)
    if settings.begin == "last" and not isinstance(vocabulary, ImportedVocabulary):
        files = _begin_last(files)
    return Exported(config, xlnet.export_tensors(own_names, settings, places, shape), files)


def _chosen_head(run: TextRun, recipe: EncoderRecipe, head: str | None) -> str:
    names = list(recipe.heads())
    if head is None and len(names) == 1:
        return names[0]
    if head in names:
        return str(head)
    missing = f"no head '{head}'" if head is not None else "several heads"
    raise UserError(f"{run.path} has {missing}: choose one (--head {', --head '.join(names)})")


def _begin_last(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a tokeniser that puts BEGIN after the texts, in a segment of its own."""
    if not files:
        return files
    tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode("utf-8"))
    begin, end = (str(tokenizer.id_to_token(symbol)) for symbol in (BEGIN, END))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end} {begin}:2",
        pair=f"$A {end} $B:1 {end}:1 {begin}:2",
        special_tokens=[(begin, BEGIN), (end, END)],
    )
    # Padded on the left, the last state of a row is that of BEGIN.
    said = json.loads(files["tokenizer_config.json"]) | {"padding_side": "left"}
    return {
        **files,
        "tokenizer.json": tokenizer.to_str(pretty=True).encode("utf-8"),
        "tokenizer_config.json": as_json(said),
    }
