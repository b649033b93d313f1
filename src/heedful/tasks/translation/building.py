"""Builds the training task of translation, and of text to text."""

import torch

from heedful.basics.errors import UserError
from heedful.basics.notices import once
from heedful.data.batching import Batch, StoreBatches
from heedful.inference.protection import Protection
from heedful.inference.translator import Translator
from heedful.models import PairModel
from heedful.tasks.pairs.building import (
    load_pair_model,
    loss_terms,
    search_options,
    train_batches,
)
from heedful.tasks.pairs.recipe import TrainingSettings
from heedful.tasks.pairs.run import PairRun
from heedful.tasks.teaching import with_objectives
from heedful.tasks.translation.training import TranslationTask
from heedful.training.protocol import Task


def build_task(
    run: PairRun,
    model: PairModel,
    training: TrainingSettings,
    device: torch.device,
    precision: str,
    batches: StoreBatches[Batch] | None = None,
    protection: Protection | None = None,
) -> Task:
    """The task for the training loop.

    Args:
        run: the run.
        model: its model, on ``device``.
        training: the training settings; some of them, such as ``max_steps``, may have changed since
            the run was started.
        device: where to compute.
        precision: precision of matrix products in training.
        batches: the training batches; those of the run's pairs if None.
        protection: encodes the validation pairs; with the rules of the recipe if None.
    """
    if training.compares_outputs and type(model).losses is not PairModel.losses:
        raise UserError(
            f"model.kind = '{run.recipe.model.kind}' does not predict from logits; leave out "
            "training.teacher and training.consistency"
        )
    evaluation = run.recipe.evaluation
    translator = Translator(
        [model],
        run.tokenisers(),
        device=device,
        protect=run.recipe.data.rules,
        notify=once(),
    )
    if protection is not None:
        translator.protection = protection
    task = TranslationTask(
        model,
        train_batches(run, training) if batches is None else batches,
        run.pairs("validation"),
        translator,
        options=search_options(evaluation),
        device=device,
        label_smoothing=training.label_smoothing,
        terms=loss_terms(run, model, training),
        precision=precision,
        tokenise=evaluation.tokenise,
        validation_pairs=evaluation.validation_pairs,
        samples=evaluation.samples,
    )
    return with_objectives(task, training, run, lambda other: load_pair_model(other).to(device))
