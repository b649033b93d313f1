"""Builds the training task of word alignment."""

import torch

from heedful.basics.notices import once
from heedful.data.batching import TokenBatches
from heedful.data.store import Store
from heedful.inference.translator import Translator
from heedful.models.aligner import WordAligner
from heedful.tasks.alignment.training import AlignmentTask
from heedful.tasks.pairs.building import loss_terms
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
        TokenBatches(Store.open(run.train_folder), training.batch_tokens),
        run.pairs("validation"),
        Translator([model], run.tokenisers(), device=device, notify=once()),
        device=device,
        terms=loss_terms(run, model, training),
        precision=precision,
    )
