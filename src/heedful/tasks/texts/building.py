"""Builds the model and the training task of a run for single texts."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from heedful.models import build_encoder
from heedful.models.encoders import HeadedEncoder
from heedful.runs.building import build, load, outline
from heedful.runs.checkpoints import load_model_tensors, open_checkpoint
from heedful.runs.run import Run
from heedful.runs.vectors import load_vectors
from heedful.tasks.teaching import initial_layers, load_teacher, with_objectives
from heedful.tasks.texts.part import Training, part_of
from heedful.tasks.texts.recipe import EncoderRecipe, TextTrainingSettings
from heedful.tasks.texts.run import TextRun, as_text_run
from heedful.training.protocol import Task


def outline_text_model(run: TextRun) -> nn.Module:
    """The recipe's model on the device ``meta``: see :func:`heedful.runs.building.outline`."""
    return outline(run, lambda: _fresh(run))


def build_text_model(run: TextRun) -> nn.Module:
    """The recipe's model with fresh weights: see :func:`heedful.runs.building.build`."""
    return build(run, lambda: _fresh(run), lambda model: _frozen(run, model))


def load_text_model(run: TextRun, checkpoint: str | int | None = None) -> nn.Module:
    """The run's model with trained weights: see :func:`heedful.runs.building.load`."""
    return load(run, lambda: _fresh(run), lambda model: _frozen(run, model), checkpoint)


def _fresh(run: TextRun) -> nn.Module:
    return part_of(run.recipe.task).fresh_model(run)


def _frozen(run: TextRun, model: nn.Module) -> list[nn.Embedding]:
    """The embedding table that the recipe freezes, if any."""
    vectors = run.recipe.vectors
    return [_embedding(model)] if vectors is not None and vectors.frozen else []


def headed_encoder(run: TextRun) -> HeadedEncoder:
    """The encoder of a run with its heads, with random initial weights.

    Raises:
        ValueError: the settings contradict each other.
        UserError: the encoder does not return the vectors that a head needs.
    """
    recipe = cast(EncoderRecipe, run.recipe)
    known = run.facts["vocabulary"]
    encoder = build_encoder(
        recipe.model,
        known["size"],
        sentence_ends=known.get("sentence_ends", []),
        separators=known.get("separators", []),
        spellings=_spellings(run) if recipe.model.reads_spellings else (),
    )
    heads: dict[str, nn.Module] = {}
    for name, head in recipe.heads().items():
        heads |= part_of(head.task).layers(name, head, encoder, len(run.labels(name)), recipe)
    return HeadedEncoder(encoder, heads)


def _spellings(run: TextRun) -> list[str]:
    """The text of each symbol of a run's vocabulary."""
    vocabulary = run.vocabulary()
    return vocabulary.decode_batch([[symbol] for symbol in range(vocabulary.size)])


def training_of(
    run: TextRun, model: Any, settings: TextTrainingSettings, device: torch.device, precision: str
) -> Training:
    """The arguments for building the training task of a run."""
    return Training(run, model, run.vocabulary(), settings, device, precision)


def build_text_task(
    run: TextRun, model: Any, settings: TextTrainingSettings, device: torch.device, precision: str
) -> Task:
    """The training task of a run with a single task."""
    ((name, own),) = run.recipe.parts().items()
    training = training_of(run, model, settings, device, precision)
    task = part_of(own.task).build_part(name, own, training)
    return with_objectives(task, settings, run, _on(device))


def _on(device: torch.device) -> Callable[[Run], nn.Module]:
    """Loads the model of another run for single texts to a device."""
    return lambda other: load_text_model(as_text_run(other)).to(device)


def load_text_start(run: TextRun, model: nn.Module) -> None:
    """Load the initial weights of a run: those of another run, and pre-trained word vectors.

    Heads that the other run does not have, or that have other labels, keep their random weights.

    Raises:
        UserError: weights or vectors are missing or damaged.
    """
    if run.facts.get("started_from") is not None:
        point = open_checkpoint(run.start_folder)
        fresh = getattr(getattr(model, "encoder", None), "fresh_at_start", ())
        beginnings = ("heads.", *(f"encoder.{name}" for name in fresh))
        own = {
            name: tensor.detach()
            for name, tensor in model.state_dict().items()
            if name.startswith(beginnings)
        }
        load_model_tensors(model, own | point.weights(), point.path)
    teacher = run.recipe.training.teacher
    if teacher is not None and teacher.initialise:
        found = load_teacher(run, teacher, _on(torch.device("cpu")))
        model.load_state_dict(initial_layers(model, found, teacher.run))
    if run.facts.get("vectors") is None:
        return
    encoder = getattr(model, "encoder", model)
    for table in getattr(encoder, "vector_tables", [_embedding(model)]):
        load_vectors(run.path, {"file": table})


def _embedding(model: nn.Module) -> nn.Embedding:
    """The table of token vectors of a language model, or of an encoder with heads."""
    found = getattr(model, "encoder", model).embedding
    if found is None:
        raise TypeError("no table of token vectors")
    return cast(nn.Embedding, found)
