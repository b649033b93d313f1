"""Trains a recipe in a new run, or resumes a run."""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heedful.basics.device import check_precision
from heedful.basics.errors import UserError
from heedful.basics.files import cannot_write, remove_leftovers, unfinished_folders
from heedful.basics.locking import locked
from heedful.basics.notices import without_repeats
from heedful.basics.thread_contention import with_threads
from heedful.kernels.allocator import keep_freed_memory
from heedful.runs.checkpoints import find_checkpoint
from heedful.runs.manifest import write_recipe, write_sealed
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, tables_of, write_toml
from heedful.runs.registry import kind_of
from heedful.runs.run import RESULT, Run
from heedful.runs.settings import Recipe
from heedful.training.building import model_of, training_task, with_batches
from heedful.training.choosing import choose, summary
from heedful.training.encoded import encoded_facts, use_encoded
from heedful.training.loop import Loop, Stop
from heedful.training.processes import Processes, join
from heedful.training.profiling import check_steps
from heedful.training.protocol import Task
from heedful.training.python_data import Rows, temporary_files, with_file_names
from heedful.training.report import Later, Report
from heedful.training.resuming import require_same, with_measured
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
    profile: int = 0,
) -> bool:
    """Train a recipe in a run folder, or resume the run there exactly where it stopped.

    Args:
        recipe: a TOML file, a recipe object, or its tables.
        out: the run's folder; created, or resumed if it is a run.
        data: the base folder of relative data paths; or an encoded corpus (``heedful data
            encode``), a folder or a URL; or the data, as
            ``{"train": rows, "validation": rows, "test": rows}``. Rows are read once, from a list,
            a generator, a pandas DataFrame or a dataset of ``datasets``; docs/data.md describes the
            rows of each task.
        start_from: a run whose weights and vocabulary initialise a new run; a resumed run has
            stored it.
        stop: called after each validation with its step and figures; returns a reason to end
            training, or None. A run that was ended in this way is not resumed.
        later: returns the estimated seconds of trainings that follow, for the progress bar.
        profile: number of steps to profile, after some steps of warm-up; written to
            ``profile/`` in the run.

    Returns:
        True when training has ended; False if it was interrupted (repeat the call to resume).

    Raises:
        UserError: settings or data are invalid, or the run cannot be resumed with them.
    """
    folder = Path(out)
    check_steps(profile)
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
            return _train(run, recipe, device, precision, stop, later, processes, profile)


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
    encoded = encoded_facts(data_folder)
    if (folder / "run.json").exists():
        run = open_run(folder)
        require_same(run, with_measured(recipe, run), data_folder, encoded)
        run.require_unchanged("data/")
        return run
    _require_free(folder)
    start = None if start_from is None else open_start(start_from, recipe)
    if encoded is not None and data_folder is not None:
        use_encoded(folder, recipe, data_folder, start)
        return open_run(folder)
    with without_repeats():
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
        kept = unfinished_folders(folder / "data")
        if new and not kept and not (folder / "run.json").exists():
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
    profile: int,
) -> bool:
    settings, kind = recipe.training, kind_of(recipe)
    model, without = model_of(run, settings, device)
    limits = settings.max_steps, settings.max_minutes
    name, shown = kind.weight_name(run), processes.first
    with Report(*limits, weight_name=name, later=later, shown=shown) as report:
        recipe = with_batches(run, model, recipe, device, precision, report, processes)
        task, precision = training_task(run, model, recipe, device, precision, report, processes)
        sharded = settings.strategy == "fsdp"
        if sharded:  # while the weights are whole
            kind.load_start(run, model)
        loop = _loop(run, task, recipe, device, precision, report, stop, profile)
        if not loop.progress.step:
            require_examples(task, recipe.seed, settings.virtual_shards)
            if not sharded:
                kind.load_start(run, model)
        processes.require_same({"the last checkpoint": loop.progress.step})
        # Write the recipe only after the loop has accepted the changed settings.
        if processes.first:
            write_recipe(run.path, write_toml(_with_files_of(run, recipe)))
        if run.result and _is_trained(run, loop):
            report.message(f"{run.path} is already trained: {summary(run.result)}")
            return True
        if processes.first and not loop.finished:  # commands use the best checkpoint again
            (run.path / RESULT).unlink(missing_ok=True)
        _announce(run, loop, without)
        if not _run_loop(loop, processes):
            report.message(f"stopped at step {loop.progress.step:,}; rerun the command to resume")
            return False
        _finish(run, loop, model, processes)
    return True


def _loop(
    run: Run,
    task: Task,
    recipe: Recipe,
    device: torch.device,
    precision: str,
    report: Report,
    stop: Stop | None,
    profile: int,
) -> Loop:
    return Loop(
        task,
        recipe.training,
        run.path,
        seed=recipe.seed,
        device=device,
        precision=precision,
        report=report,
        stop=stop,
        falls=kind_of(recipe).falls(recipe, recipe.training.choose_by),
        profile=profile,
    )


def _run_loop(loop: Loop, processes: Processes) -> bool:
    """Train to the end; returns False if interrupted."""
    # The generator that initialised the weights also drives dropout; checkpoints store its state.
    with launcher_signals(processes):
        finished = loop.run()
        processes.barrier()  # until rank 0 has written the last checkpoint
    return finished


def _is_trained(run: Run, loop: Loop) -> bool:
    """Whether the training is finished and the checkpoint that it chose is whole."""
    result = run.result
    if not loop.finished or result is None or result["step"] != loop.progress.step:
        return False
    try:
        return find_checkpoint(loop.checkpoints, result["chosen"], str(run.path)) is not None
    except UserError as error:
        loop.report.message(f"{error}; another one is chosen")
        return False


def _with_files_of(run: Run, recipe: Recipe) -> Recipe:
    """``recipe`` with the data tables of the run, because the files may have moved."""
    tables = recipe.as_tables()
    tables |= {key: own for key, own in run.recipe.as_tables().items() if key in ("data", "tasks")}
    return check_recipe(tables, str(run.path), written=True)


def _beginning(run: Run, step: int, about: str) -> str:
    at = f"from step {step:,}" if step else "from the start"
    return f"training {run.path} {at}: {kind_of(run.recipe).amount(run)}, {about}"


def _announce(run: Run, loop: Loop, without: list[str]) -> None:
    """Print what is trained, and messages about settings ``without`` effect."""
    parameters = sum(p.numel() for p in loop.task.model.parameters())
    about = f"{parameters:,} parameters, {loop.precision} on {loop.device.type}"
    loop.report.message(_beginning(run, loop.progress.step, about))
    for text in [*without, *_without_effect(run, loop)]:
        loop.report.message(text)


def _without_effect(run: Run, loop: Loop) -> list[str]:
    """Messages about settings that have no effect in this run."""
    settings, texts = loop.settings, []
    sends_rounded = settings.strategy == "fsdp" and loop.precision == "bfloat16"
    if settings.gather_precision == "bfloat16" and not sends_rounded:
        texts.append(
            "training.gather_precision has no effect without training.strategy = 'fsdp' and "
            "products in bfloat16"
        )
    if run.recipe.is_validated:
        return texts
    is_set = {
        "training.average_checkpoints": settings.average_checkpoints > 1,
        "training.patience": settings.patience is not None,
    }
    return texts + [
        f"{name} has no effect without validation data (set data.validation or "
        "data.validation_share)"
        for name, value in is_set.items()
        if value
    ]


def _finish(run: Run, loop: Loop, model: nn.Module, processes: Processes) -> None:
    """Choose the run's checkpoint and write the result."""
    result = choose(loop, model)
    if processes.first:
        write_sealed(run.path, RESULT, result)
    loop.report.message(f"trained: {summary(result)}")
