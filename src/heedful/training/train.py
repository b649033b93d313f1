"""Trains a recipe in a new run, or resumes a run."""

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.fx.experimental._config as shapes
from torch import nn

from heedful.basics.device import check_precision
from heedful.basics.errors import UserError
from heedful.basics.files import cannot_write, remove_leftovers
from heedful.basics.locking import locked
from heedful.basics.thread_contention import with_threads
from heedful.basics.user_cache import cache_folder
from heedful.data.positions import Position
from heedful.kernels.allocator import keep_freed_memory
from heedful.runs.attention_parts import PARTS, parts_of
from heedful.runs.checkpoints import (
    folder_of,
    load_model_tensors,
    mean_weights,
    model_tensors,
    open_checkpoint,
    save_checkpoint,
    whole_checkpoints,
)
from heedful.runs.manifest import write_recipe, write_sealed
from heedful.runs.model_size import TRAINED_COPIES, require_room
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, tables_of, write_toml
from heedful.runs.registry import kind_of
from heedful.runs.run import RESULT, Run
from heedful.runs.settings import LoopSettings, Recipe
from heedful.training.fastest_precision import training_precision
from heedful.training.loop import Loop, Stop
from heedful.training.processes import Processes, join
from heedful.training.protocol import Task
from heedful.training.python_data import Rows, temporary_files, with_file_names
from heedful.training.report import Later, Report
from heedful.training.resuming import require_same
from heedful.training.sharing import (
    launcher_signals,
    open_shared_run,
    require_examples,
    require_same_command,
    require_same_run,
    with_shards,
)
from heedful.training.strategy_choice import require_divisible
from heedful.training.warm_start import find_start, open_start, with_start


def train(
    recipe: str | Path | Recipe | Mapping[str, Any],
    out: str | Path,
    *,
    data: str | Path | Rows | None = None,
    start_from: str | Path | None = None,
    stop: Stop | None = None,
    later: Later | None = None,
) -> bool:
    """Train a recipe in a run folder, or resume the run there exactly where it stopped.

    Args:
        recipe: a TOML file, a recipe object, or its tables.
        out: the run's folder; created, or resumed if it is a run.
        data: the base folder of relative data paths; or the data, as
            ``{"train": rows, "validation": rows, "test": rows}``. Rows are read once, from a list,
            a generator, a pandas DataFrame or a dataset of ``datasets``; docs/data.md describes the
            rows of each task.
        start_from: a run whose weights and vocabulary initialise a new run; a resumed run has
            stored it.
        stop: called after each validation with its step and figures; returns a reason to end
            training, or None. A run that was ended in this way is not resumed.
        later: returns the estimated seconds of trainings that follow, for the progress bar.

    Returns:
        True when training has ended; False if it was interrupted (repeat the call to resume).

    Raises:
        UserError: settings or data are invalid, or the run cannot be resumed with them.
    """
    folder = Path(out)
    rows = data if isinstance(data, Mapping) else None
    processes = join()
    with processes.together():
        checked = _checked(recipe, find_start(folder, start_from), rows)
        recipe = with_shards(checked.of_a_run(), folder, processes)
        require_divisible(recipe.training, processes)
        require_same_command(recipe, folder, data, start_from, processes)
        device = processes.device(recipe.training.device)
        precision = check_precision(recipe.training.precision, device)
        with _shared(folder, recipe, data, start_from, processes) as run:
            return _train(run, recipe, device, precision, stop, later, processes)


def prepare(
    recipe: Recipe,
    out: str | Path,
    *,
    data: str | Path | None = None,
    start_from: str | Path | None = None,
) -> Run:
    """Prepare a run without training it; :func:`train` then trains it.

    The arguments and errors are those of :func:`train`.
    """
    with _prepared(Path(out), recipe.of_a_run(), data, start_from) as run:
        return run


@contextlib.contextmanager
def _prepared(
    folder: Path, recipe: Recipe, data: str | Path | Rows | None, start_from: str | Path | None
) -> Iterator[Run]:
    """The run in a folder, prepared if it is new, and locked while the block runs."""
    kind_of(recipe).require_usable(recipe)
    keep_freed_memory()
    threads = with_threads(recipe.training.threads or torch.get_num_threads())
    with threads, _made(folder), locked(folder, doing="trained"):
        for place in (folder, folder / "data", folder / "tokeniser", folder / "checkpoints"):
            remove_leftovers(place)
        with contextlib.ExitStack() as stack:
            if isinstance(data, Mapping):
                data = stack.enter_context(temporary_files(recipe, data, folder))
            data_folder = None if data is None else Path(data)
            run = _open_or_prepare(folder, recipe, data_folder, start_from)
        yield run


@contextlib.contextmanager
def _shared(
    folder: Path,
    recipe: Recipe,
    data: str | Path | Rows | None,
    start_from: str | Path | None,
    processes: Processes,
) -> Iterator[Run]:
    """The run in a folder for all processes; rank 0 prepares it and holds its lock."""
    threads = with_threads(recipe.training.threads or torch.get_num_threads())
    with contextlib.ExitStack() as stack, threads:
        runs: list[Run] = []
        prepared = _prepared(folder, recipe, data, start_from)
        processes.by_first(lambda: runs.append(stack.enter_context(prepared)))
        if not processes.first:
            runs.append(open_shared_run(folder, processes))
        require_same_run(runs[0], processes)
        yield runs[0]


def _checked(
    recipe: str | Path | Recipe | Mapping[str, Any], start: Path | None, rows: Rows | None
) -> Recipe:
    if rows is None and not isinstance(recipe, str | Path | Mapping):
        return recipe
    tables, where = tables_of(recipe)
    if rows is not None:
        tables = with_file_names(tables, rows)
    return check_recipe(with_start(tables, start), where)


def _open_or_prepare(
    folder: Path, recipe: Recipe, data_folder: Path | None, start_from: str | Path | None
) -> Run:
    if (folder / "run.json").exists():
        run = open_run(folder)
        require_same(run, recipe, data_folder)
        run.require_unchanged("data/")
        return run
    _require_free(folder)
    start = None if start_from is None else open_start(start_from, recipe)
    return kind_of(recipe).prepare(folder, recipe, data_folder, start)


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Create the folder if necessary; remove it again if an error occurs before the run exists."""
    if folder.is_file():
        raise UserError(f"{folder} is a file; --out must be a folder")
    new = not folder.exists()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        yield
    except UserError:
        if new and not (folder / "run.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _require_free(folder: Path) -> None:
    expected = {"data", "tokeniser", "start", "recipe.toml", "manifest.json"}
    other = [path.name for path in folder.iterdir() if path.name not in expected]
    if [name for name in other if not name.startswith(".")]:
        raise UserError(
            f"{folder} contains other files ({sorted(other)[0]}); give a new folder or a run as "
            "--out"
        )


def _train(
    run: Run,
    recipe: Recipe,
    device: torch.device,
    precision: str,
    stop: Stop | None,
    later: Later | None,
    processes: Processes,
) -> bool:
    settings, kind = recipe.training, kind_of(recipe)
    model = _model(run, recipe, device)
    parameters = sum(p.numel() for p in model.parameters())
    limits = settings.max_steps, settings.max_minutes
    name, shown = kind.weight_name(run), processes.first
    with Report(*limits, weight_name=name, later=later, shown=shown) as report:
        task, precision = _task(run, model, recipe, device, precision, report, processes)
        loop = Loop(
            task,
            settings,
            run.path,
            seed=recipe.seed,
            device=device,
            precision=precision,
            report=report,
            stop=stop,
            falls=kind.falls(recipe, settings.choose_by),
        )
        if not loop.progress.step:
            require_examples(task, recipe.seed, settings.virtual_shards)
            kind.load_start(run, model)
        processes.require_same({"the last checkpoint": loop.progress.step})
        # Write the recipe only after the loop has accepted the changed settings.
        if processes.first:
            write_recipe(run.path, write_toml(_with_files_of(run, recipe)))
        if loop.finished and run.result and run.result["step"] == loop.progress.step:
            report.message(f"{run.path} is already trained: {_summary(run.result)}")
            return True
        about = f"{parameters:,} parameters, {precision} on {device.type}"
        for text in [_beginning(run, loop.progress.step, about), *_without_effect(run, settings)]:
            report.message(text)
        if not _run_loop(loop, processes):
            report.message(f"stopped at step {loop.progress.step:,}; rerun the command to resume")
            return False
        result = _choose(run, loop, model)
        if processes.first:
            write_sealed(run.path, RESULT, result)
        report.message(f"trained: {_summary(result)}")
    return True


def _model(run: Run, recipe: Recipe, device: torch.device) -> nn.Module:
    """The model of a run on its device, compiled if the recipe says so."""
    kind = kind_of(recipe)
    copies = TRAINED_COPIES[recipe.training.optimiser]
    require_room(kind.outline_model(run), str(run.path / "recipe.toml"), copies=copies)
    model = kind.build_model(run)
    model.to(device)
    if recipe.training.compile:
        compile_method(model, kind.compile_name(run))
    return model


def _run_loop(loop: Loop, processes: Processes) -> bool:
    """Train to the end; returns False if interrupted."""
    # The generator that initialised the weights also drives dropout; checkpoints store its state.
    with launcher_signals(processes):
        finished = loop.run()
        processes.barrier()  # until rank 0 has written the last checkpoint
    return finished


def _task(
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


def _with_files_of(run: Run, recipe: Recipe) -> Recipe:
    """``recipe`` with the data tables of the run, because the files may have moved."""
    tables = recipe.as_tables()
    tables |= {key: own for key, own in run.recipe.as_tables().items() if key in ("data", "tasks")}
    return check_recipe(tables, str(run.path), written=True)


def _beginning(run: Run, step: int, about: str) -> str:
    at = f"from step {step:,}" if step else "from the start"
    return f"training {run.path} {at}: {kind_of(run.recipe).amount(run)}, {about}"


def _without_effect(run: Run, settings: LoopSettings) -> list[str]:
    """Messages about settings that have no effect without validation data."""
    if run.recipe.is_validated:
        return []
    is_set = {
        "training.average_checkpoints": settings.average_checkpoints > 1,
        "training.patience": settings.patience is not None,
    }
    return [
        f"{name} has no effect without validation data (set data.validation or "
        "data.validation_share)"
        for name, value in is_set.items()
        if value
    ]


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


def _choose(run: Run, loop: Loop, model: nn.Module) -> dict[str, Any]:
    """Choose the run's checkpoint: the best one, or the average of the last ones if better."""
    settings, progress = loop.settings, loop.progress
    found = whole_checkpoints(loop.checkpoints)
    by = settings.choose_by
    best = progress.best_step if progress.best_step is not None else progress.step
    result: dict[str, Any] = {
        "chosen": folder_of(best),
        "step": progress.step,
        "chosen_by": by if progress.best is not None else None,
        **({"given_up": True} if progress.given_up else {}),
    }
    for point in found:
        if point.step == best:
            result["validation"] = point.state["validation"]
    tried = settings.average_checkpoints > 1 and not progress.given_up
    if tried and len(found) > 1 and progress.best is not None:
        last = found[-settings.average_checkpoints :]
        weights = mean_weights(last)
        load_model_tensors(model, weights, loop.checkpoints)
        figures = loop.strategy.agreed(loop.task.validate()).figures
        state = {
            "step": progress.step,
            "best_step": None,
            "validation": figures,
            "progress": {},
            "average_of": [point.step for point in last],
            PARTS: parts_of(model),
        }
        if loop.writes:
            save_checkpoint(loop.checkpoints / "average", model_tensors(model), {}, state)
        result["average"] = {"of": state["average_of"], "validation": figures}
        loop.strategy.agreed(None)  # sent when rank 0 has saved
        if loop.rank(figures) > progress.best:
            result |= {"chosen": "average", "validation": figures}
        point = open_checkpoint(loop.checkpoints / result["chosen"])
        load_model_tensors(model, point.weights(), point.path)
    return result


def _summary(result: dict[str, Any]) -> str:
    figures = result.get("validation") or {}
    text = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
    return f"{result['chosen']} chosen" + (f" on validation ({text})" if text else "")
