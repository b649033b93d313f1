"""Builds the training task of word alignment."""

import torch

from heedful.basics.notices import once
from heedful.inference.translator import Translator
from heedful.models.aligner import WordAligner
from heedful.tasks.alignment.training import AlignmentTask
from heedful.tasks.pairs.building import loss_terms, train_batches
from heedful.tasks.pairs.recipe import TrainingSettings
from heedful.tasks.pairs.run import PairRun


def build_task(
    run: PairRun,
    model: WordAligner,
    training: TrainingSettings,
    device: torch.device,
    precision: str,
) -> AlignmentTask:
    """The task for the training loop; the arguments are those of a translation's.

    Recipes with models other than an aligner have been refused before.
    """
    return AlignmentTask(
        model,
        train_batches(run, training),
        run.pairs("validation"),
        Translator([model], run.tokenisers(), device=device, notify=once()),
        device=device,
        terms=loss_terms(run, model, training),
        precision=precision,
    )
