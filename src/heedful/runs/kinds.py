"""What training asks of a run, whatever its task: a table of functions for each kind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from heedful.basics.errors import UserError
from heedful.evaluation.statistics import check_tokeniser
from heedful.models import build_encoder, build_language_model, build_model
from heedful.runs import building, preparation, text_building, text_preparation
from heedful.runs.model_size import TRAINED_COPIES, on_meta, require_room
from heedful.runs.preparation import Start
from heedful.runs.recipe import PairRecipe, Recipe, TextRecipe
from heedful.runs.run import Run, TextRun
from heedful.runs.text_recipe import EncoderRecipe, LanguageRecipe
from heedful.tasks.protocol import Task

_LEAST_SYMBOLS = 5
"""Of a vocabulary: before it is made, its size is not known."""


class Kind(NamedTuple):
    """How runs of one kind are made and trained; ``Any`` is their own class of recipes or runs."""

    require_usable: Callable[[Any], None]
    """Raise UserError, before anything is read, for what cannot be had on this machine."""
    prepare: Callable[[Path, Any, Path | None, Start | None], Run]
    """Make a new run: folder, recipe, the folder where data paths start, what it starts from."""
    data_hashes: Callable[[Any, Path | None], dict[str, list[str]]]
    """Content hashes of a recipe's files, by the dotted key that names them."""
    build_model: Callable[[Any], nn.Module]
    """The run's model with fresh weights."""
    outline_model: Callable[[Any], nn.Module]
    """The same on the device ``meta``, which takes no memory."""
    build_task: Callable[[Any, Any, Any, torch.device, str], Task]
    """The task of a run and its model, by settings of training, device and precision."""
    load_start: Callable[[Any, Any], None]
    """Put the weights that a run began with into its model."""
    amount: Callable[[Any], str]
    """What is learnt from, for people: "28,997 pairs"."""
    weight_name: Callable[[Any], str]
    """What a batch's weight counts, for people: "tokens"."""
    compile_name: Callable[[Any], str]
    """The method of the model, with dots for parts of it, that ``training.compile`` compiles."""


def kind_of(recipe: Recipe) -> Kind:
    """The kind of a recipe's runs."""
    return PAIRS if isinstance(recipe, PairRecipe) else TEXTS


def _require_scorable(recipe: PairRecipe) -> None:
    """Say now, and not at the first validation, that its scores cannot be had here."""
    try:
        check_tokeniser(recipe.evaluation.tokenise, present=recipe.is_validated)
    except UserError as error:
        raise UserError(f"evaluation.tokenise: {error}") from error


def _require_usable_pairs(recipe: PairRecipe) -> None:
    _require_room(recipe, lambda: build_model(recipe.model, _LEAST_SYMBOLS, _LEAST_SYMBOLS))
    _require_scorable(recipe)


def _require_usable_texts(recipe: TextRecipe) -> None:
    if isinstance(recipe, EncoderRecipe):
        encoder = recipe.model
        _require_room(recipe, lambda: build_encoder(encoder, _LEAST_SYMBOLS))
    if isinstance(recipe, LanguageRecipe):
        writer = recipe.model
        _require_room(recipe, lambda: build_language_model(writer, _LEAST_SYMBOLS))


def _require_room(recipe: Recipe, build: Callable[[], nn.Module]) -> None:
    """Say now, and not after the data were prepared, that the model is larger than the memory."""
    copies = TRAINED_COPIES[recipe.training.optimiser]
    try:
        require_room(on_meta(build), "the recipe's [model]", copies=copies)
    except (ValueError, RuntimeError) as error:  # of settings that exclude each other
        raise UserError(f"the recipe's [model]: {error}") from error


PAIRS = Kind(
    require_usable=_require_usable_pairs,
    prepare=preparation.prepare_run,
    data_hashes=preparation.data_hashes,
    build_model=building.build_run_model,
    outline_model=building.outline_run_model,
    build_task=building.build_task,
    load_start=building.load_run_start,
    amount=lambda run: f"{run.facts['data']['train_pairs']:,} pairs",
    weight_name=lambda run: "tokens",
    compile_name=lambda run: "states",
)


def _amount(run: TextRun) -> str:
    """ "5,452 texts with 6 labels", or such of each thing that is learnt."""
    parts = []
    for name, facts in run.facts["sets"].items():
        labels = f" with {len(facts['labels']):,} labels" if facts["labels"] else ""
        own = f"{facts['train']:,} {facts['unit']}{labels}"
        parts.append(own if len(run.facts["sets"]) == 1 else f"{name}: {own}")
    return "; ".join(parts)


def _weight_name(run: TextRun) -> str:
    names = {"language-model": "tokens", "tagging": "words", "several": "batches"}
    return names.get(run.recipe.task, "examples")


TEXTS = Kind(
    require_usable=_require_usable_texts,
    prepare=text_preparation.prepare_text_run,
    data_hashes=text_preparation.text_data_hashes,
    build_model=text_building.build_text_model,
    outline_model=text_building.outline_text_model,
    build_task=text_building.build_text_task,
    load_start=text_building.load_text_start,
    amount=_amount,
    weight_name=_weight_name,
    compile_name=lambda run: "states" if run.recipe.task == "language-model" else "encoder.encode",
)
