"""Converts BERT and its relatives to runs, and runs to such models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, PAD
from heedful.data.imported_vocabulary import ImportedVocabulary, count_rows
from heedful.data.vocabularies import SavedVocabulary
from heedful.interop.exported import Exported
from heedful.interop.folder import CONFIG, read_weights
from heedful.interop.layouts.albert import ALBERT
from heedful.interop.layouts.bert import BERT
from heedful.interop.layouts.distilbert import DISTILBERT
from heedful.interop.layouts.electra import ELECTRA
from heedful.interop.layouts.encoder import (
    NUMBER,
    SEVERAL_LABELS,
    SPANS,
    EncoderLayout,
    EncoderShape,
)
from heedful.interop.layouts.roberta import ROBERTA, XLM_ROBERTA
from heedful.interop.texts import (
    ImportedText,
    labels_of,
    places_and_special,
    read_vocabulary,
    vocabulary_files,
    vocabulary_settings,
)
from heedful.interop.tokeniser_class import separators_of_pairs
from heedful.models.bert import Bert, BertSettings
from heedful.models.electra import ReplacedTokens
from heedful.runs.calibration import read_temperatures
from heedful.tasks.answer_spans.recipe import SpanData, SpanRecipe
from heedful.tasks.multi_label.recipe import MultiLabelledData, MultiLabelRecipe
from heedful.tasks.replaced.recipe import ReplacedHead, ReplacedRecipe
from heedful.tasks.texts.masking_settings import MaskingSettings
from heedful.tasks.texts.recipe import (
    ClassificationRecipe,
    DocumentData,
    EncoderRecipe,
    LabelledData,
    MaskedRecipe,
    RatedData,
    RegressionRecipe,
    TaggedData,
    TaggingRecipe,
)
from heedful.tasks.texts.run import TextRun

LAYOUTS: Mapping[str, EncoderLayout] = {
    layout.model_type: layout
    for layout in (BERT, DISTILBERT, ROBERTA, XLM_ROBERTA, ELECTRA, ALBERT)
}
"""``model_type`` of ``config.json`` → layout."""

GENERATOR = "generator"
"""The generator of a run of replaced-token detection, as a head to export."""

_MASKED, _NEXT, _REPLACED = "masked", "masked_next", "replaced"
_NUMBER, _SEVERAL = "regression", "multi-label"
_OF_TEXTS = {
    _NUMBER: ("classification", NUMBER),
    _SEVERAL: ("classification", SEVERAL_LABELS),
}
"""Tasks whose heads are classifiers in other libraries, with the ``problem_type`` there."""
_PAIRS = ("next_sentence", "sentence_order")


def read_encoder(
    layout: EncoderLayout, folder: Path, config: dict[str, Any], *, pairs: bool = False
) -> ImportedText:
    """An encoder's recipe, vocabulary and weights; its head determines the task.

    Args:
        layout: the layout of the files.
        folder: contains the files.
        config: the content of ``config.json``.
        pairs: whether a classifier reads pairs of texts.

    Raises:
        UserError: a field is not supported, a file is missing or damaged, or they contradict each
            other.
    """
    where = str(folder)
    if pairs and layout.separators > 1:
        raise _pair_error(layout, where)
    settings = layout.settings_of(config, f"{where}/{CONFIG}")
    vocabulary = read_vocabulary(folder, config, encoder=True)
    if vocabulary.special[BEGIN] is None:
        raise UserError(
            f"{where}: the tokeniser has no cls_token, with which texts of an encoder begin; name "
            "it in tokenizer_config.json"
        )
    tensors = read_weights(folder)
    shape = layout.shape_of(tensors, config)
    if layout.separators > 1 and "qa_outputs.weight" in tensors:
        raise _span_error(layout, where)
    found = layout.import_tensors(tensors, settings, vocabulary.places, shape, where)
    weights = _renamed(found, dict.fromkeys(_PAIRS, _NEXT))
    labels: list[str] = []
    number, several = _number_or_several(shape, config.get("problem_type"), f"{where}/{CONFIG}")
    if number or several:
        weights = _renamed(weights, {"classification": _NUMBER if number else _SEVERAL})
    if SPANS in shape.heads:
        weights[f"heads.{SPANS}.threshold"] = torch.zeros(())
    for head in ("classification", "tagging"):
        if head in shape.heads and not number:
            labels = labels_of(config, shape.heads[head], f"{where}/{CONFIG}")
    if layout.has_fresh_pooler(settings, shape):
        notice(f"{where}: no pooler in the file; it is initialised randomly and needs training")
    dropout = layout.head_dropout(config, shape)
    recipe = _encoder_recipe(
        folder, settings, vocabulary, shape, dropout, pairs=pairs, several=several
    )
    outputs: dict[str, float] = {"mean": 0.0, "deviation": 1.0} if number else {}
    if SPANS in shape.heads:
        outputs = {"unanswerable": 0, "long_answers": 0}
    if _REPLACED in shape.heads:
        notice(f"{where}: no generator in the file; it is initialised randomly and needs training")
        weights |= _fresh_generator(cast(ReplacedRecipe, recipe), vocabulary.size)
    elif not labels and not number and not {_MASKED, SPANS} & shape.heads.keys():
        notice(
            f"{where}: no head for masked tokens in the file; it is initialised randomly and needs "
            "training"
        )
        weights |= _fresh_head(settings, vocabulary.size)
    return ImportedText(recipe, vocabulary, weights, labels, sorted(shape.heads), outputs)


def _number_or_several(shape: EncoderShape, problem: Any, where: str) -> tuple[bool, bool]:
    """Whether a classifier predicts a number, and whether it gives any number of labels."""
    outputs = shape.heads.get("classification", 0)
    if problem == NUMBER and outputs > 1:
        raise UserError(
            f'{where}: problem_type = "{NUMBER}": the head has {outputs} outputs; heedful predicts '
            "one number for a text"
        )
    several = outputs > 0 and problem == SEVERAL_LABELS
    return outputs == 1 and not several, several


def _span_error(layout: EncoderLayout, where: str) -> UserError:
    return UserError(
        f"{where}: {layout.model_type} puts {layout.separators} symbols between question and "
        "text, heedful one, so that its answers would differ; import a model of another layout"
    )


def _pair_error(layout: EncoderLayout, where: str) -> UserError:
    return UserError(
        f"{where}: --pairs: {layout.model_type} puts {layout.separators} symbols between the "
        "texts of a pair, heedful one, so that its predictions would differ; import "
        "classifiers of single texts only"
    )


def _encoder_recipe(
    folder: Path,
    settings: BertSettings,
    vocabulary: ImportedVocabulary,
    shape: EncoderShape,
    head_dropout: float,
    *,
    pairs: bool,
    several: bool,
) -> EncoderRecipe:
    given: dict[str, Any] = {
        "tokeniser": vocabulary_settings(vocabulary),
        "model": settings,
        "max_tokens": min(128, settings.max_length),
        "head_dropout": head_dropout,
    }
    train = [str(folder)]
    if "classification" in shape.heads:
        columns = {"text": ["first", "second"]} if pairs else {}
        if several:
            return MultiLabelRecipe(data=MultiLabelledData(train=train, **columns), **given)
        if shape.heads["classification"] == 1:
            return RegressionRecipe(data=RatedData(train=train, **columns), **given)
        return ClassificationRecipe(data=LabelledData(train=train, **columns), **given)
    if "tagging" in shape.heads:
        return TaggingRecipe(data=TaggedData(train=train), **given)
    if SPANS in shape.heads:
        return SpanRecipe(data=SpanData(train=train), **given)
    if vocabulary.mask is None:
        raise UserError(
            f"{folder}: the tokeniser has no mask_token, which a model without a classification or "
            "tagging head needs; set it in tokenizer_config.json"
        )
    documents = DocumentData(train=train)
    if _REPLACED in shape.heads:
        return ReplacedRecipe(data=documents, **given)
    masking = MaskingSettings(**{name: name in shape.heads for name in _PAIRS})
    return MaskedRecipe(data=documents, masking=masking, **given)


def _fresh_head(settings: BertSettings, size: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    dim, width = settings.hidden_size, settings.embedding_width
    dense = torch.empty(width, dim).normal_(0.0, 0.02, generator=generator)
    return {
        f"heads.{_MASKED}.dense.weight": dense,
        f"heads.{_MASKED}.dense.bias": torch.zeros(width),
        f"heads.{_MASKED}.norm.weight": torch.ones(width),
        f"heads.{_MASKED}.norm.bias": torch.zeros(width),
        f"heads.{_MASKED}.bias": torch.zeros(size),
    }


def _fresh_generator(recipe: ReplacedRecipe, size: int) -> dict[str, Tensor]:
    """A generator, initialised as in training, with a fixed seed."""
    head: ReplacedHead = recipe.heads()[_REPLACED]
    settings = cast(BertSettings, recipe.model)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        made = ReplacedTokens(Bert(settings, size), head.generator(settings))
    begin = f"heads.{_REPLACED}."
    return {
        f"{begin}{name}": tensor
        for name, tensor in made.state_dict().items()
        if name.startswith("generator.")
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


def write_encoder(run: TextRun, weights: dict[str, Tensor], head: str | None) -> Exported:
    """Export an encoder's run with one of its heads.

    Args:
        run: the run, whose model is a ``bert``.
        weights: the weights of the checkpoint to export.
        head: the head to export, for a multi-task run; ``generator`` for that of a discriminator.

    Raises:
        UserError: there are several heads and none is named, the layout does not support a setting,
            or the vocabulary has no layout.
    """
    recipe = cast(EncoderRecipe, run.recipe)
    settings = cast(BertSettings, recipe.model)
    vocabulary = run.vocabulary()
    replaced = _replaced_head(recipe)
    if head == GENERATOR and replaced is not None:
        settings, own = replaced.generator(settings), _generator_weights(weights)
        heads, labels, problem = {_MASKED: 0}, [], None
    else:
        name = chosen_head(run, recipe, head)
        _refuse_two_separators(run, recipe, name, vocabulary)
        given: str = recipe.heads()[name].task
        labels = run.labels(name) if given not in (_MASKED, _REPLACED) else []
        task, problem = _OF_TEXTS.get(given, (given, None))
        if given == _NUMBER:
            weights = _in_its_unit(weights, run, name)
            labels = ["LABEL_0"]  # transformers' name of the only output
        _report_thresholds(run, weights, name)
        heads = {task: 2 if task == SPANS else len(labels)} | _heads_of_pairs(recipe, name)
        following = next((each for each in _PAIRS if each in heads), _PAIRS[0])
        own = _renamed(weights, {name: task, f"{name}_next": following})
        if (kept := (run.facts.get("imported") or {}).get("heads")) is not None:
            heads = {each: count for each, count in heads.items() if each in kept}
    layout = LAYOUTS[_layout_of(run, settings, heads)]
    shape = layout.shape_for(heads)
    places, special = places_and_special(vocabulary)
    config = layout.config_of(settings, shape, places) | {
        "vocab_size": count_rows(places),
        "pad_token_id": special[PAD],
        **layout.head_fields(shape, recipe.head_dropout),
    }
    if labels:
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
    if problem is not None and "classification" in heads:
        config["problem_type"] = problem
    second = 0 if settings.segments == 1 else 1
    files = vocabulary_files(run, vocabulary, settings.max_length, around=True, second=second)
    return Exported(config, layout.export_tensors(own, settings, places, shape), files)


def _refuse_two_separators(
    run: TextRun, recipe: EncoderRecipe, name: str, vocabulary: SavedVocabulary
) -> None:
    """Raise UserError if a head reads pairs, between which the tokeniser puts other symbols."""
    head = recipe.heads()[name]
    pairs = head.task == SPANS or len(getattr(head.data, "text", ())) > 1
    if not isinstance(vocabulary, ImportedVocabulary) or not (
        pairs or _heads_of_pairs(recipe, name)
    ):
        return
    count = separators_of_pairs(vocabulary.files, str(run.path))
    if count != 1:
        raise UserError(
            f"{run.path}: its tokeniser puts {count} symbols between the texts of a pair in "
            "transformers, heedful one, so that predictions would differ; export models of single "
            "texts only, or train with a vocabulary of another model"
        )


def _report_thresholds(run: TextRun, weights: Mapping[str, Tensor], head: str) -> None:
    """Report thresholds that the run keeps with a head, for which the layout has no place."""
    chosen, nothing = (weights.get(f"heads.{head}.{name}") for name in ("chosen", "threshold"))
    if chosen is not None:
        each = zip(run.labels(head), chosen.tolist(), strict=True)
        shown = ", ".join(f"{label} {value:.4g}" for label, value in each)
        notice(f"{run.path}: thresholds of labels are not exported: {shown}")
    elif nothing is not None and run.facts["sets"][head]["unanswerable"]:
        notice(f"{run.path}: the threshold of no answer is not exported: {float(nothing):.4g}")
    elif (fixed := getattr(run.recipe, "threshold", 0.5)) != 0.5:
        notice(f"{run.path}: the threshold {fixed} of labels is not exported")


def _in_its_unit(weights: Mapping[str, Tensor], run: TextRun, head: str) -> dict[str, Tensor]:
    """The weights with an output layer that gives the number itself, not standard deviations."""
    facts = run.facts["sets"][head]
    layer = f"heads.{head}.output."
    return {
        **weights,
        f"{layer}weight": weights[f"{layer}weight"] * facts["deviation"],
        f"{layer}bias": weights[f"{layer}bias"] * facts["deviation"] + facts["mean"],
    }


def _heads_of_pairs(recipe: EncoderRecipe, name: str) -> dict[str, int]:
    """The head of pairs of segments beside a head for masked tokens."""
    masking: MaskingSettings | None = getattr(recipe.heads()[name], "masking", None)
    if masking is None or masking.of_pairs is None:
        return {}
    return {"sentence_order" if masking.sentence_order else "next_sentence": 2}


def _layout_of(run: TextRun, settings: BertSettings, heads: Mapping[str, int]) -> str:
    """The layout that the run was imported from; otherwise the one that supports its settings."""
    imported = (run.facts.get("imported") or {}).get("layout")
    if imported in LAYOUTS:
        return str(imported)
    if _REPLACED in heads or settings.pooler == "gelu":
        return ELECTRA.model_type
    if settings.shared_layers:
        return ALBERT.model_type
    if settings.embedding_size is not None:
        return ELECTRA.model_type
    return BERT.model_type if settings.segments else DISTILBERT.model_type


def _replaced_head(recipe: EncoderRecipe) -> ReplacedHead | None:
    """The head of a discriminator, if the recipe has one."""
    heads: Mapping[str, Any] = recipe.heads()
    return next((head for head in heads.values() if head.task == _REPLACED), None)


def _generator_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a discriminator's generator, as an encoder with a head for masked tokens."""
    begin, head = f"heads.{_REPLACED}.generator.", f"heads.{_REPLACED}.generator.head."
    own = {name: one for name, one in weights.items() if name.startswith("encoder.embeddings.")}
    for name, tensor in weights.items():
        if name.startswith(head):
            own[f"heads.{_MASKED}.{name.removeprefix(head)}"] = tensor
        elif name.startswith(begin):
            own[f"encoder.{name.removeprefix(begin)}"] = tensor
    return own


def chosen_head(run: TextRun, recipe: EncoderRecipe, head: str | None) -> str:
    """The head to export: the one that is named, or the only one.

    Raises:
        UserError: there is no such head, there are several and none is named, or it is a
            conditional random field.
    """
    names = list(recipe.heads())
    if head in names or (head is None and len(names) == 1):
        chosen = names[0] if head is None else head
        if getattr(recipe.heads()[chosen], "crf", False):
            raise UserError(
                f"{run.path}: the head '{chosen}' is a conditional random field (crf = true), for "
                "which other formats have no layer; train without crf to export"
            )
        if read_temperatures(run).get(chosen) is not None:
            notice(f"{run.path}: the temperature of calibration.json is not exported")
        return chosen
    missing = f"no head '{head}'" if head is not None else "several heads"
    more = [] if _replaced_head(recipe) is None else [GENERATOR]
    shown = ", --head ".join([*names, *more])
    raise UserError(f"{run.path} has {missing}: choose one (--head {shown})")
