"""Shares prepared data between runs that differ only in other settings."""

import os
import shutil
from pathlib import Path

from heedful.basics.files import atomic_folder
from heedful.runs.manifest import write_facts, write_recipe
from heedful.runs.recipe import write_toml
from heedful.runs.run import Run
from heedful.runs.settings import Recipe

_MEMORY = "memory.jsonl"


def can_share(run: Run, recipe: Recipe) -> bool:
    """Whether a run's held-out examples, tokeniser and encoded corpus fit a recipe.

    The seed may differ; both runs then have the held-out examples of the first run's seed. A
    teacher gives its vocabulary, so that it must be the same.
    """
    return (
        teacher_name(run.recipe) == teacher_name(recipe)
        and reads_words(run.recipe) == reads_words(recipe)
        and all(
            getattr(run.recipe, table, None) == getattr(recipe, table, None)
            for table in recipe.prepared_by
        )
    )


def teacher_name(recipe: Recipe) -> str | None:
    """The teacher that a recipe names."""
    teacher = getattr(recipe.training, "teacher", None)
    return None if teacher is None else str(teacher.run)


def reads_words(recipe: Recipe) -> bool:
    """Whether a recipe's model makes words of characters; the facts of its run say where they
    end."""
    return bool(getattr(getattr(recipe, "model", None), "reads_words", False))


def share_preparation(run: Run, folder: Path, recipe: Recipe) -> None:
    """Create a new run with the prepared data of another, by hard links where possible.

    Raises:
        UserError: the folder cannot be written.
    """
    with atomic_folder(folder, private=True) as made:
        for name in ("data", "tokeniser", "start"):
            if not (run.path / name).exists():
                continue  # only runs that were started from another have this file
            shutil.copytree(run.path / name, made / name, copy_function=_link)
        if (run.path / _MEMORY).exists():
            _link(str(run.path / _MEMORY), str(made / _MEMORY))
        write_recipe(made, write_toml(recipe))
        write_facts(made, run.facts)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system, or hard links are not supported
        shutil.copy2(source, target)
    return target
