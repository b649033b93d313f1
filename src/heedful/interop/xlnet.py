"""Converts XLNet models to runs, and runs to such models."""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.imported_vocabulary import count_rows
from heedful.interop.exported import Exported
from heedful.interop.folder import CONFIG, read_weights
from heedful.interop.layouts import xlnet
from heedful.interop.texts import (
    ImportedText,
    chosen_head,
    files_of_tokeniser,
    labels_of,
    read_vocabulary,
    renamed_heads,
    rows_of_symbols,
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
    vocabulary = read_vocabulary(folder, config)
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
    name = chosen_head(run, recipe, head)
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
    places, special = rows_of_symbols(vocabulary)
    config = xlnet.config_of(settings, shape) | {
        "vocab_size": count_rows(places),
        "pad_token_id": special[PAD],
        "bos_token_id": special[BEGIN],
        "eos_token_id": special[END],
    }
    if labels:
        config["summary_last_dropout"] = recipe.head_dropout
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    converted = xlnet.export_tensors(renamed_heads(weights, {name: task}), settings, places, shape)
    last = settings.begin == "last"
    around = {"around": True, "begin_last": last}
    files = files_of_tokeniser(run, vocabulary, settings.max_length, **around)
    return Exported(config, converted, files)
