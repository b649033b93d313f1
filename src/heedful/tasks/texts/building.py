"""From the settings of a run for single texts to its model and task."""

from typing import Any, cast

import torch
from torch import nn

from heedful.basics.errors import UserError
from heedful.models import build_encoder
from heedful.models.encoders import HeadedEncoder
from heedful.runs.checkpoints import load_model_tensors, open_checkpoint
from heedful.runs.model_size import on_meta, require_room
from heedful.runs.parts import load_weights
from heedful.runs.vectors import put_vectors
from heedful.tasks.texts.part import Training, part_of
from heedful.tasks.texts.recipe import EncoderRecipe, TextTrainingSettings
from heedful.tasks.texts.run import TextRun
from heedful.training.protocol import Task


def outline_text_model(run: TextRun) -> nn.Module:
    """The recipe's model on the device ``meta``: its shapes, without numbers or memory for them.

    Raises:
        UserError: the settings do not go together.
    """
    return on_meta(lambda: _fresh(run))


def _fresh(run: TextRun) -> nn.Module:
    try:
        return part_of(run.recipe.task).fresh_model(run)
    except (ValueError, RuntimeError) as error:  # of a size that PyTorch cannot count
        raise UserError(f"{run.path / 'recipe.toml'}: {error}") from error


def load_text_model(run: TextRun, checkpoint: str | int | None = None) -> nn.Module:
    """The run's model with the weights of a checkpoint.

    Args:
        run: the run.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.

    Raises:
        UserError: there is no such checkpoint, it is damaged or not of the recipe's model, or
            larger than the memory.
    """
    point = run.chosen(checkpoint)
    return load_weights(lambda: build_text_model(run), lambda: outline_text_model(run), point)


def build_text_model(run: TextRun) -> nn.Module:
    """The recipe's model with fresh weights, which the recipe's seed decides.

    Raises:
        UserError: the settings do not go together, or it is larger than the memory.
    """
    recipe = run.recipe
    require_room(outline_text_model(run), str(run.path / "recipe.toml"))
    torch.manual_seed(recipe.seed)
    model = _fresh(run)
    if recipe.vectors is not None and recipe.vectors.frozen:
        _embedding(model).weight.requires_grad_(False)
    return model


def headed_encoder(run: TextRun) -> HeadedEncoder:
    """The encoder of a run with its heads, with weights as they are drawn.

    Raises:
        ValueError: the settings do not go together.
        UserError: the encoder has not the vectors that a head decides by.
    """
    recipe = cast(EncoderRecipe, run.recipe)
    known = run.facts["vocabulary"]
    encoder = build_encoder(
        recipe.model, known["size"], sentence_ends=known.get("sentence_ends", [])
    )
    heads: dict[str, nn.Module] = {}
    for name, head in recipe.heads().items():
        heads |= part_of(head.task).layers(name, head, encoder, len(run.labels(name)), recipe)
    return HeadedEncoder(encoder, heads)


def training_of(
    run: TextRun, model: Any, settings: TextTrainingSettings, device: torch.device, precision: str
) -> Training:
    """What the task of a run is made of."""
    return Training(run, model, run.vocabulary(), settings, device, precision)


def build_text_task(
    run: TextRun, model: Any, settings: TextTrainingSettings, device: torch.device, precision: str
) -> Task:
    """The task of a run that learns one thing, ready for the loop."""
    ((name, own),) = run.recipe.parts().items()
    training = training_of(run, model, settings, device, precision)
    return part_of(own.task).learn(name, own, training)


def load_text_start(run: TextRun, model: nn.Module) -> None:
    """Put the weights that a run began with into its model, and the vectors of words.

    Heads that the other run did not have, or that decide on other labels, stay as they are.

    Raises:
        UserError: weights or vectors are missing or damaged.
    """
    if run.facts.get("started_from") is not None:
        point = open_checkpoint(run.start_folder)
        own = {
            name: tensor.detach()
            for name, tensor in model.state_dict().items()
            if name.startswith("heads.")
        }
        load_model_tensors(model, own | point.weights(), point.path)
    if run.facts.get("vectors") is None:
        return
    put_vectors(run.path, {"file": _embedding(model)})


def _embedding(model: nn.Module) -> nn.Embedding:
    """The table of token vectors of a language model, or of an encoder with heads."""
    found = getattr(model, "encoder", model).embedding
    if found is None:
        raise TypeError("no table of token vectors")
    return cast(nn.Embedding, found)
