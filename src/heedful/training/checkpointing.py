"""Saves, restores and deletes the checkpoints of a training run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.runs.attention_parts import PARTS, parts_of, require_parts
from heedful.runs.checkpoints import (
    STATE,
    Checkpoint,
    folder_of,
    load_model_tensors,
    remove_checkpoint,
    save_checkpoint,
)
from heedful.runs.settings import LoopSettings
from heedful.training.optimisers import load_optimiser_tensors
from heedful.training.progress import Progress
from heedful.training.protocol import Task

_TASK = "task."
"""Prefix of the names of the task's tensors in a checkpoint."""


def restore(
    checkpoint: Checkpoint,
    task: Task,
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    device: torch.device,
) -> None:
    """Load the model, the optimiser, the task and the random generators from a checkpoint.

    Raises:
        UserError: the checkpoint is damaged, or belongs to another model.
    """
    require_parts(task.model, checkpoint)
    load_model_tensors(task.model, checkpoint.weights(), checkpoint.path)
    tensors = checkpoint.training()
    parts = checkpoint.parts()
    if parts is not None:
        from heedful.training.optimiser_shards import read_parts  # imports torch.distributed

        tensors |= read_parts(parts, optimiser)
    load_optimiser_tensors(optimiser, tensors)
    task.load(
        {
            name.removeprefix(_TASK): tensor
            for name, tensor in tensors.items()
            if name.startswith(_TASK)
        }
    )
    if checkpoint.state["scaler"]:
        scaler.load_state_dict(checkpoint.state["scaler"])
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def save(
    folder: Path,
    task: Task,
    tensors: tuple[dict[str, Tensor], dict[str, Tensor]],
    progress: Progress,
    validation: Mapping[str, float],
    *,
    scaler: torch.amp.GradScaler,
    device: torch.device,
    precision: str,
    parts: Path | None = None,
    extra: bool = False,
) -> None:
    """Write a checkpoint with everything that :func:`restore` loads.

    Args:
        folder: the folder of all checkpoints.
        task: the task that is trained.
        tensors: the tensors of the model and of the optimiser.
        progress: the progress of training.
        validation: the figures of this step, if it was validated.
        scaler: the loss scaler of float16.
        device: the device of the model.
        precision: the precision of training.
        parts: a folder in ``folder`` with parts of the optimiser's state.
        extra: whether it is saved only because training was interrupted.
    """
    weights, training = tensors
    training = training | {_TASK + name: tensor for name, tensor in task.tensors().items()}
    training["random.cpu"] = torch.get_rng_state()
    if device.type == "cuda":
        training["random.cuda"] = torch.cuda.get_rng_state(device)
    state: dict[str, Any] = {
        "step": progress.step,
        "best_step": progress.best_step,
        "validation": dict(validation),
        "progress": progress.to_state(),
        "scaler": scaler.state_dict(),
        "precision": precision,
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
        PARTS: parts_of(task.model),
        **({"extra": True} if extra else {}),
    }
    save_checkpoint(folder / folder_of(progress.step), weights, training, state, parts)


def is_extra(path: Path) -> bool:
    """Whether a checkpoint was saved only because training was interrupted.

    A damaged checkpoint counts as a regular one; a notice names it when training is resumed.
    """
    try:
        return bool(read_json(path / STATE).get("extra"))
    except UserError:
        return False


def prune(
    folder: Path,
    settings: LoopSettings,
    ranks: Mapping[int, list[float]],
    best_step: int | None,
    step: int,
) -> None:
    """Keep the last and the best checkpoints and delete the others.

    A checkpoint that an interruption saved is kept until the next one, and beside the others, so
    that a resumed training keeps those of an uninterrupted one. Later ones than ``step`` are
    damaged, because training was not resumed from them: they do not count.

    Args:
        folder: the folder of all checkpoints.
        settings: contains how many are kept.
        ranks: checkpoint step → rank of its validation; greater is better.
        best_step: the first of the best checkpoints, which the run uses.
        step: that of training.
    """
    there = (int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))
    steps = sorted(one for one in there if one <= step)
    ranked = sorted((one for one in steps if one in ranks), key=ranks.__getitem__)
    by_value = ranked[::-1]
    regular = [one for one in steps if not is_extra(folder / folder_of(one))]
    kept = {*steps[-1:], *regular[-settings.keep_last :], *by_value[: settings.keep_best]}
    kept.add(best_step or 0)
    for one in steps:
        if one not in kept:
            remove_checkpoint(folder / folder_of(one))
