"""The settings of a run that may change when it is resumed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.file_identity import hashed_like
from heedful.runs.registry import kind_of
from heedful.runs.run import Run
from heedful.runs.settings import Recipe

CHANGEABLE = frozenset(
    {
        "training.max_steps",
        "training.max_minutes",
        "training.device",
        "training.threads",
        "training.activation_checkpointing",
        "training.strategy",
        "training.cpu_offload",
        "training.gather_precision",
        "training.log_every",
        "training.validate_every",
        "training.checkpoint_every",
        "training.keep_last",
        "training.keep_best",
        "training.average_checkpoints",
        "training.patience",
        "training.tensorboard",
        "evaluation.beam",
        "evaluation.length_penalty",
        "evaluation.validation_pairs",
        "evaluation.samples",
        "samples",
    }
)
"""Settings of an existing run that may change; docs/training.md lists them with reasons."""

_VECTORS = ("vectors.file", "vectors.source", "vectors.target")
_FILES = ("data.train", "data.validation", "data.test", "data.links", *_VECTORS)
"""Suffixes of keys of files, which are compared by content."""


def with_measured(recipe: Recipe, run: Run) -> Recipe:
    """``recipe`` with the size of batches that the run measured, if both let heedful measure it."""
    own = run.recipe.training
    if not (recipe.training.batch_from_memory and own.batch_from_memory):
        return recipe
    kept = {key: getattr(own, key) for key in ("batch_tokens", "accumulation_steps")}
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=kept)})


def require_same(
    run: Run,
    recipe: Recipe,
    data_folder: Path | None,
    encoded: Mapping[str, Any] | None = None,
) -> None:
    """Raise UserError if ``recipe`` differs from the run's own in a way that changes its weights.

    Data files are compared by content hash, not by name.

    Args:
        run: the run that is resumed.
        recipe: all settings.
        data_folder: the base of relative data paths.
        encoded: the facts of the encoded corpus that is used instead of the files, if any.
    """
    old, new = flat(run.recipe.model_dump(mode="json")), flat(recipe.model_dump(mode="json"))
    changeable = CHANGEABLE
    if recipe.training.schedule in ("linear", "cosine", "slanted_triangular"):
        # Schedules end at the last step, so another max_steps changes the learning rates.
        changeable -= {"training.max_steps"}
    for key in sorted(old.keys() | new.keys()):
        if key in changeable or key.endswith(_FILES):
            continue
        if old.get(key) != new.get(key):
            begun = run.facts.get("started_from")
            if begun is not None and key.startswith(("model.", "tokeniser.")):
                raise UserError(
                    f"{run.path} was started with {key} = {old.get(key)!r}, now it is "
                    f"{new.get(key)!r}; it was started from another run: to resume it, add "
                    f"--start-from {begun['run']}"
                )
            raise UserError(
                f"{run.path} was started with {key} = {old.get(key)!r}, now it is "
                f"{new.get(key)!r}: this cannot change when a run is resumed; use another --out"
            )
    known = run.facts["data"]["hashes"]
    if encoded is not None:
        now = encoded["data"]["hashes"]
    else:
        with hashed_like(known):
            now = kind_of(recipe).data_hashes(recipe, data_folder)
    for part in sorted(known.keys() | now.keys()) if now else []:
        if (part in known) != (part in now):
            raise UserError(
                f"{run.path} was started {'with' if part in known else 'without'} "
                f"{_key_of(recipe, part)}: this cannot change when a run is resumed; use another "
                "--out"
            )
        if now[part] != known[part]:
            raise UserError(
                f"{_key_of(recipe, part)} is not what {run.path} was started with (its content "
                "differs); use another --out, and --start-from to continue with new data"
            )


def _key_of(recipe: Recipe, part: str) -> str:
    """The setting that names the files of ``part``."""
    return part if part in _VECTORS else kind_of(recipe).setting_of_files(recipe, part)


def flat(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings by dotted key."""
    result: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{before}{key}.")
        else:
            result[before + key] = value
    return result
