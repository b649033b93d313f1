"""Checkpoints of a run, as safetensors and JSON, written to a temporary folder, then renamed.

``checkpoints/step-00001000/`` contains ``model.safetensors``, ``training.safetensors`` (optimiser
and random states) and ``state.json`` with the hashes of the other files and its own, so that damage
is detected. With FSDP2, each process writes its part of the optimiser's state to ``optimiser/``.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from heedful.basics.bounded_reading import read_json, require_regular
from heedful.basics.errors import UserError
from heedful.basics.files import as_json, atomic_folder, content_hash
from heedful.basics.memory import machine_memory, readable_size
from heedful.basics.notices import notice
from heedful.runs.manifest import SEAL, is_sealed, seal
from heedful.runs.sharded_tensors import copy_whole

MODEL, TRAINING, STATE = "model.safetensors", "training.safetensors", "state.json"
PARTS_FOLDER = "optimiser"
_PART = re.compile(PARTS_FOLDER + r"/shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors", re.ASCII)
_NAME = re.compile(r"average|step-\d{8,18}", re.ASCII)
_WITHOUT_SEAL = frozenset(
    {"step", "best_step", "validation", "progress", "scaler", "average_of", "hashes"}
)
"""Fields of ``state.json`` in versions that did not store its own hash."""
_mapped: ContextVar[list[Path] | None] = ContextVar("mapped", default=None)


class Checkpoint(NamedTuple):
    """A checkpoint on disk."""

    path: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """The training step of the checkpoint."""
        return int(self.state["step"])

    def weights(self) -> dict[str, Tensor]:
        """The model's tensors by name.

        Raises:
            UserError: the file is missing or damaged, or a value is not finite.
        """
        tensors = read_tensors(self.path / MODEL)
        require_finite(tensors, self.path / MODEL)
        return tensors

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the model's tensors by name, from the header of the file.

        Raises:
            UserError: the file is missing or damaged.
        """
        path = self.path / MODEL
        require_regular(path)
        try:
            with safe_open(path, framework="pt") as file:
                names = file.keys()
                return {name: tuple(file.get_slice(name).get_shape()) for name in names}
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} is missing or damaged: {error}") from error

    def training(self) -> dict[str, Tensor]:
        """The tensors of the optimiser and of the random generators by name."""
        return read_tensors(self.path / TRAINING)

    def parts(self) -> Path | None:
        """The folder with the parts of the optimiser's state; None if it is not in parts.

        Raises:
            UserError: it contains other files.
        """
        known = {name for name in self.state["hashes"] if name not in (MODEL, TRAINING)}
        folder = self.path / PARTS_FOLDER
        there = {f"{PARTS_FOLDER}/{path.name}" for path in folder.glob("*")}
        if there != known:
            other = sorted(there ^ known)[0]
            raise UserError(f"checkpoint {self.path} is damaged ({other} does not belong to it)")
        return folder if known else None


def folder_of(step: int) -> str:
    """The folder name of a step's checkpoint."""
    return f"step-{step:08d}"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, on the CPU; a shared tensor is listed once."""
    named = named_tensors(model)
    return {name: tensor.detach().to("cpu").contiguous() for name, tensor in named.items()}


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, where they are; a shared one is listed once."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor
    return tensors


def load_model_tensors(model: nn.Module, tensors: dict[str, Tensor], where: Path) -> None:
    """Load ``tensors`` into ``model``.

    Raises:
        UserError: a tensor is missing, unknown, or has another shape (another kind of model).
    """
    require_shapes(model, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, where)
    own = model.state_dict(keep_vars=True)
    mapped = _mapped.get()
    if mapped is not None:
        mapped.append(where)
    with torch.no_grad():
        for name, tensor in tensors.items():
            kept = own[name]
            if mapped is not None and (kept.dtype, kept.device) == (tensor.dtype, tensor.device):
                kept.data = tensor
            else:
                copy_whole(kept, tensor)


@contextmanager
def mapped_weights() -> Iterator[list[Path]]:
    """Models that are loaded in this block use the memory-mapped files of their weights.

    Processes that load the same checkpoint then share one copy of its weights in memory, as long as
    none changes them. Yields a list to which the paths of all loaded checkpoints are added.
    """
    paths: list[Path] = []
    token = _mapped.set(paths)
    try:
        yield paths
    finally:
        _mapped.reset(token)


def require_finite(tensors: Mapping[str, Tensor], where: Path) -> None:
    """Raise UserError with the tensor's name if a value is infinite or NaN."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise UserError(
                f"{where}: the tensor '{name}' has numbers that are not finite (NaN or infinity), "
                "so the model cannot be used; use another checkpoint, or train it again"
            )


def require_shapes(model: nn.Module, shapes: Mapping[str, tuple[int, ...]], where: Path) -> None:
    """Raise UserError unless the shapes are those of ``model``, which may be on any device.

    A tensor with several names is in ``shapes`` once, under any of them.
    """
    own = model.state_dict(keep_vars=True)
    names = {id(tensor): name for name, tensor in reversed(own.items())}
    wanted = {names[id(tensor)]: tensor for tensor in own.values()}
    unknown, missing = sorted(set(shapes) - set(own)), sorted(set(wanted) - set(shapes))
    if unknown or missing:
        example = (unknown or missing)[0]
        raise UserError(
            f"{where}: the weights are of another kind of model than the recipe's "
            f"('{example}' does not fit); use the run's own recipe"
        )
    for name, shape in shapes.items():
        if tuple(own[name].shape) != tuple(shape):
            raise UserError(
                f"{where}: '{name}' has shape {list(shape)}, the recipe's model "
                f"{list(own[name].shape)}; use the run's own recipe"
            )


def save_checkpoint(
    folder: Path,
    model: dict[str, Tensor],
    training: dict[str, Tensor],
    state: dict[str, Any],
    parts: Path | None = None,
) -> None:
    """Write a checkpoint atomically.

    Args:
        folder: the checkpoint.
        model: the tensors of the model.
        training: the tensors of the optimiser and of the random generators.
        state: the fields of ``state.json``.
        parts: a folder beside ``folder`` with parts of the optimiser's state; it is moved.
    """
    with atomic_folder(folder) as beside:
        _save(model, beside / MODEL)
        _save(training, beside / TRAINING)
        names = [MODEL, TRAINING]
        if parts is not None:
            parts.rename(beside / PARTS_FOLDER)
            files = sorted((beside / PARTS_FOLDER).iterdir())
            names += [f"{PARTS_FOLDER}/{path.name}" for path in files]
        hashes = {name: content_hash(beside / name) for name in names}
        (beside / STATE).write_text(as_json(seal({**state, "hashes": hashes})), encoding="utf-8")


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        # safetensors wraps system errors, such as a full disk, in its own error.
        raise OSError(str(error)) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        UserError: the file is missing or damaged.
    """
    require_regular(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is missing or damaged: {error}") from error


def whole_checkpoints(folder: Path) -> list[Checkpoint]:
    """The undamaged checkpoints in ``folder`` by step; a notice names each damaged one."""
    found = []
    for path in sorted(path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)):
        try:
            found.append(open_checkpoint(path))
        except UserError as error:
            notice(f"{error}; the checkpoint before it is used instead")
    return found


def find_checkpoint(folder: Path, name: str, where: str) -> Checkpoint | None:
    """The checkpoint called ``name`` in ``folder``; None if there is none.

    Raises:
        UserError: ``name`` is not a checkpoint name (but a path, for example), or the checkpoint is
            damaged; the message starts with ``where``.
    """
    if not _NAME.fullmatch(name):
        raise UserError(f"{where}: '{name}' is not a checkpoint; names are 'average' or 'step-…'")
    return open_checkpoint(folder / name) if (folder / name).exists() else None


def open_checkpoint(path: Path) -> Checkpoint:
    """Open the checkpoint at ``path`` and verify the hashes of its files.

    Raises:
        UserError: it is missing, damaged, or larger than this machine's memory.
    """
    try:
        state = read_json(path / STATE)
    except UserError as error:
        raise UserError(f"checkpoint {path} is damaged ({error})") from error
    hashes = state.get("hashes")
    sealed = is_sealed(state) if SEAL in state else state.keys() <= _WITHOUT_SEAL
    if not sealed or not isinstance(hashes, dict) or not _are_names(set(hashes)):
        raise UserError(f"checkpoint {path} is damaged ({STATE} has changed)")
    figures = state.get("validation")
    if (
        type(state.get("step")) is not int
        or not isinstance(figures, dict)
        or not all(isinstance(figure, int | float) for figure in figures.values())
    ):
        raise UserError(f"checkpoint {path} is damaged ({STATE} lacks step or validation)")
    for name, value in hashes.items():
        if _hash(path / name) != value:
            raise UserError(f"checkpoint {path} is damaged ({name} has changed)")
    return Checkpoint(path, state)


def _are_names(names: set[str]) -> bool:
    """Whether these are the names of the files of a checkpoint."""
    whole = {MODEL, TRAINING}
    return whole <= names and all(_PART.fullmatch(name) for name in names - whole)


def _hash(path: Path) -> str:
    try:
        size, memory = path.stat().st_size, machine_memory()
        if memory is not None and size > memory:
            raise UserError(
                f"{path} has {readable_size(size)}, more than this machine's memory "
                f"({readable_size(memory)})"
            )
        return content_hash(path)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"checkpoint {path.parent} is damaged ({path.name}: {reason})") from error


def remove_checkpoint(path: Path) -> None:
    """Delete a checkpoint. Its state is deleted first, so that a partial deletion is detected."""
    (path / STATE).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def mean_weights(checkpoints: list[Checkpoint]) -> dict[str, Tensor]:
    """The mean of the weights of checkpoints, summed in float64."""
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
