"""Builds what a run trains: its model, the size of its batches, and its training task."""

import contextlib
import functools
import os

import torch
import torch.fx.experimental._config as shapes
from torch import nn

from heedful.basics.user_cache import cache_folder
from heedful.data.positions import Position
from heedful.layers.checkpointing import checkpoint_layers
from heedful.runs.checkpoints import whole_checkpoints
from heedful.runs.model_size import TRAINED_COPIES, require_room
from heedful.runs.registry import kind_of
from heedful.runs.run import Run
from heedful.runs.settings import LoopSettings, Recipe
from heedful.training.batch_size import fit_batch
from heedful.training.fastest_precision import training_precision
from heedful.training.processes import Processes
from heedful.training.protocol import Task
from heedful.training.report import Report
from heedful.training.resuming import with_measured
from heedful.training.strategy_choice import strategy_of


def model_of(run: Run, settings: LoopSettings, device: torch.device) -> tuple[nn.Module, list[str]]:
    """The model of a run with its initial weights, on the device; messages about settings that have
    no effect on it."""
    kind = kind_of(run.recipe)
    copies = TRAINED_COPIES[settings.optimiser]
    require_room(kind.outline_model(run), str(run.path / "recipe.toml"), copies=copies)
    model: nn.Module = kind.build_model(run)
    model.to(device)
    if settings.compile:
        compile_method(model, kind.compile_name(run))
    if settings.activation_checkpointing and not checkpoint_layers(model):
        return model, [
            "training.activation_checkpointing has no effect: the model has no stack of layers"
        ]
    return model, []


def with_batches(
    run: Run,
    model: nn.Module,
    recipe: Recipe,
    device: torch.device,
    precision: str,
    report: Report,
    processes: Processes,
) -> Recipe:
    """The recipe with the size of batches that fits in memory, if heedful measures it."""
    settings = recipe.training
    if not settings.batch_from_memory:
        return recipe
    if whole_checkpoints(run.path / "checkpoints"):
        return with_measured(recipe, run)
    precision = "float32" if precision == "auto" else precision

    def build(tried: LoopSettings) -> Task:
        task: Task = kind_of(recipe).build_task(run, model, tried, device, precision)
        return task

    how = settings, device, precision
    make = strategy_of(build(settings), *how, seed=recipe.seed, processes=processes, alone=True)
    fitted = fit_batch(
        settings, build, make, device, recipe.seed, report.message, processes=processes
    )
    return recipe.model_copy(update={"training": fitted})


def training_task(
    run: Run,
    model: nn.Module,
    recipe: Recipe,
    device: torch.device,
    precision: str,
    report: Report,
    processes: Processes,
) -> tuple[Task, str]:
    """The training task of a run, and its precision with ``auto`` resolved."""
    build = functools.partial(kind_of(recipe).build_task, run, model, recipe.training, device)
    if precision != "auto":
        return build(precision), precision
    saved = whole_checkpoints(run.path / "checkpoints")
    state = saved[-1].state if saved else None
    task, begin = build("float32"), Position(recipe.seed, 0, 0)
    settled = processes.by_first(
        lambda: training_precision(task, begin, device, state, report.message)
    )
    return (task if settled == "float32" else build(settled)), settled


def compile_method(model: nn.Module, name: str, backend: str = "inductor") -> None:
    """Compile a method of a model, or of a submodule, once for all batch shapes.

    Compiled code is stored in the user's cache folder, unless another folder is set for PyTorch.
    """
    with contextlib.suppress(OSError, AttributeError):  # otherwise, PyTorch's default folder
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "inductor"))
    # Otherwise dimensions that are equal in the first batch are assumed to be always equal, and the
    # compiled code would depend on the step at which a run was resumed.
    shapes.use_duck_shape = False
    part, _, method = name.rpartition(".")
    owner = model.get_submodule(part)
    compiled = torch.compile(getattr(owner, method), dynamic=True, backend=backend)
    setattr(owner, method, compiled)
