"""Checkpoints: points in a run, as safetensors and JSON, written beside and renamed.

``checkpoints/step-00001000/`` holds ``model.safetensors``, ``training.safetensors`` (optimiser and
random states) and ``state.json`` with the other files' hashes, so that a damaged one is known.
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder, content_hash
from heedful.basics.notices import notice

MODEL, TRAINING, STATE = "model.safetensors", "training.safetensors", "state.json"


class Checkpoint(NamedTuple):
    """A checkpoint on disk."""

    path: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """Optimiser steps taken."""
        return int(self.state["step"])

    def weights(self) -> dict[str, Tensor]:
        """The model's tensors by name."""
        return read_tensors(self.path / MODEL)

    def training(self) -> dict[str, Tensor]:
        """The optimiser's and the random generators' tensors by name."""
        return read_tensors(self.path / TRAINING)


def folder_of(step: int) -> str:
    """The name of a step's checkpoint."""
    return f"step-{step:08d}"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and lasting buffers by name; a tensor that two names share stands once."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach().to("cpu").contiguous()
    return tensors


def load_model_tensors(model: nn.Module, tensors: dict[str, Tensor], where: Path) -> None:
    """Put ``tensors`` into ``model``.

    Raises:
        UserError: a tensor is missing, unknown, or of another shape: another kind of model.
    """
    own = model.state_dict(keep_vars=True)
    names = {id(tensor): name for name, tensor in reversed(own.items())}
    wanted = {names[id(tensor)]: tensor for tensor in own.values()}
    unknown, missing = sorted(set(tensors) - set(own)), sorted(set(wanted) - set(tensors))
    if unknown or missing:
        example = (unknown or missing)[0]
        raise UserError(
            f"{where}: the weights are of another kind of model than the recipe's "
            f"('{example}' does not fit); use the run's own recipe"
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            if own[name].shape != tensor.shape:
                raise UserError(
                    f"{where}: '{name}' has shape {list(tensor.shape)}, the recipe's model "
                    f"{list(own[name].shape)}; use the run's own recipe"
                )
            own[name].copy_(tensor)


def save_checkpoint(
    folder: Path, model: dict[str, Tensor], training: dict[str, Tensor], state: dict[str, Any]
) -> None:
    """Write a checkpoint whole, or not at all."""
    with atomic_folder(folder) as beside:
        _save(model, beside / MODEL)
        _save(training, beside / TRAINING)
        hashes = {name: content_hash(beside / name) for name in (MODEL, TRAINING)}
        text = json.dumps({**state, "hashes": hashes}, indent=1)
        (beside / STATE).write_text(text, encoding="utf-8")


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        # The library wraps the system's error (a full disk, say) in its own.
        raise OSError(str(error)) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is missing or damaged: {error}") from error


def whole_checkpoints(folder: Path) -> list[Checkpoint]:
    """The undamaged checkpoints in ``folder``, by step; a damaged one is named in a notice."""
    found = []
    for path in sorted(folder.glob("step-*")):
        try:
            found.append(open_checkpoint(path))
        except UserError as error:
            notice(f"{error}; it is left out, and the checkpoint before it is used")
    return found


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at ``path``, its files' hashes compared.

    Raises:
        UserError: it is missing or damaged.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        damaged = [
            name for name, value in state["hashes"].items() if content_hash(path / name) != value
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"checkpoint {path} is damaged ({error})") from error
    if damaged:
        raise UserError(f"checkpoint {path} is damaged ({damaged[0]} has changed)")
    return Checkpoint(path, state)


def remove_checkpoint(path: Path) -> None:
    """Delete a checkpoint; a half-deleted one is no checkpoint, as its state goes first."""
    (path / STATE).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def mean_weights(checkpoints: list[Checkpoint]) -> dict[str, Tensor]:
    """The mean of the checkpoints' weights, summed in float64."""
    total: dict[str, Tensor] = {}
    first: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        weights = checkpoint.weights()
        first = first or weights
        for name, tensor in weights.items():
            total[name] = total.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
    return {
        name: (tensor / len(checkpoints)).to(first[name].dtype) for name, tensor in total.items()
    }
