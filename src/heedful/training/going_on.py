"""What a run that goes on may change, and what not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.runs.preparation import data_hashes
from heedful.runs.recipe import Recipe
from heedful.runs.run import Run

CHANGEABLE = frozenset(
    {
        "training.max_steps",
        "training.max_minutes",
        "training.device",
        "training.threads",
        "training.log_every",
        "training.validate_every",
        "training.checkpoint_every",
        "training.keep_last",
        "training.keep_best",
        "training.average",
        "training.patience",
        "training.tensorboard",
        "evaluation.beam",
        "evaluation.length_penalty",
        "evaluation.validation_pairs",
        "evaluation.samples",
    }
)
"""Settings of an existing run that may change; docs/training.md gives the list with reasons."""

_PATHS = frozenset({"data.train", "data.validation", "data.test", "data.links"})


def require_same(run: Run, recipe: Recipe, data_folder: Path | None) -> None:
    """Raise UserError if ``recipe`` differs from the run's own in a way that changes its weights.

    Data files are compared by content, not by name.
    """
    old, new = flat(run.recipe.model_dump(mode="json")), flat(recipe.model_dump(mode="json"))
    fixed = CHANGEABLE | _PATHS
    if recipe.training.schedule in ("linear", "cosine"):
        # The schedule ends at the last step: another last step is another schedule.
        fixed -= {"training.max_steps"}
    for key in sorted(old.keys() | new.keys()):
        if key not in fixed and old.get(key) != new.get(key):
            raise UserError(
                f"{run.path} was begun with {key} = {old.get(key)!r}, now it is "
                f"{new.get(key)!r}: a run that goes on cannot change this; use another --out"
            )
    if "-" in recipe.data.train:
        return
    if (run.recipe.data.links is None) != (recipe.data.links is None):
        raise UserError(
            f"{run.path} was begun {'with' if run.recipe.data.links else 'without'} data.links: a "
            "run that goes on cannot change this; use another --out"
        )
    known = run.facts["data"]["hashes"]
    for part, hashes in data_hashes(recipe, data_folder).items():
        if hashes != known.get(part):
            raise UserError(
                f"data.{part} is not what {run.path} was begun with (its content differs); use "
                "another --out, and --start-from to go on from this run with new data"
            )


def flat(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings by dotted key."""
    result: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{before}{key}.")
        else:
            result[before + key] = value
    return result
