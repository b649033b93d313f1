"""Folders of several runs that are trained from one recipe: searches and comparisons."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.runs.opening import open_run
from heedful.runs.run import Run
from heedful.runs.settings import Recipe
from heedful.runs.shared_preparation import can_share, share_preparation
from heedful.training.resuming import flat

T = TypeVar("T")

HARMLESS = frozenset(
    {
        *("training.device", "training.threads", "training.log_every", "training.tensorboard"),
        *("training.checkpoint_every", "evaluation.samples"),
    }
)
"""Recipe settings that may change when the runs are resumed."""
FILES = ("data.train", "data.validation", "data.test")
"""Suffixes of keys of files, which training compares by content."""
ENDING = ("linear", "cosine", "slanted_triangular")
"""Learning-rate schedules that end at the last step."""


def compared_settings(recipe: Recipe) -> dict[str, Any]:
    """The settings that must not change when the runs are resumed, by dotted key."""
    return {
        key: value
        for key, value in flat(recipe.as_tables()).items()
        if key not in HARMLESS
        and not key.startswith(("tune.", "compare."))
        and not key.endswith(FILES)
    }


def require_same_settings(
    folder: Path, known: dict[str, Any], now: dict[str, Any], what: str
) -> None:
    """Check that the settings in a folder have not changed.

    Args:
        folder: the folder.
        known: the settings that it was started with.
        now: those of this call.
        what: what is resumed, for the error: "a search".

    Raises:
        UserError: a setting has changed.
    """
    old, new = flat(known), flat(now)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            name = key.removeprefix("recipe.").replace("space.", "[tune] ")
            raise UserError(
                f"{folder} was started with {name} = {old.get(key)!r}, now it is {new.get(key)!r}: "
                f"this cannot change when {what} is resumed; use another --out"
            )


def read_record(path: Path, version: int, build: Callable[[dict[str, Any]], T]) -> T | None:
    """What ``build`` makes of a JSON record; None if there is no such file.

    Raises:
        UserError: the file is damaged or has another format version.
    """
    if not path.exists():
        return None
    values = read_json(path)
    if values.get("format") != version:
        raise UserError(
            f"{path} is of format {values.get('format')}, this version reads {version}; use "
            "another --out"
        )
    try:
        return build(values)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: a field is missing; the file is damaged") from error


def require_empty(folder: Path, what: str) -> None:
    """Raise UserError if a folder, which is not yet ``what``, contains files."""
    other = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    if other:
        raise UserError(
            f"{folder} contains other files ({sorted(other)[0]}); give a new folder or {what} as "
            "--out"
        )


def share_with(folder: Path, recipe: Recipe, runs: Iterable[Path]) -> bool:
    """Share the prepared data of one of ``runs`` with a new run in ``folder``.

    Returns:
        Whether the run is prepared now; otherwise training prepares it.
    """
    if (folder / "run.json").exists():
        return True
    for path in runs:
        if (path / "run.json").exists() and can_share(open_run(path), recipe):
            share_preparation(open_run(path), folder, recipe)
            return True
    return False


def report_early_end(run: Run, step: int) -> None:
    """Print a notice if a run ended at ``step``, before the end of its learning-rate schedule."""
    settings = run.recipe.training
    if step < settings.max_steps and settings.schedule in ENDING:
        notice(
            f"{run.path} ended at step {step:,}, but its {settings.schedule} schedule "
            f"ends at {settings.max_steps:,}; set training.max_steps to about the number of "
            "steps that the time allows, so that training ends at a low learning rate"
        )
