"""One preparation for several runs that differ in other things than their data."""

import os
import shutil
from pathlib import Path

from heedful.basics.files import atomic_folder
from heedful.runs.manifest import write_facts, write_recipe
from heedful.runs.recipe import write_toml
from heedful.runs.run import Run
from heedful.runs.settings import Recipe

_SHARED = ("task", "data", "tasks", "tokeniser", "max_tokens", "masking", "vectors")
"""What preparation depends on, of any recipe."""


def can_share(run: Run, recipe: Recipe) -> bool:
    """Whether a run's held-out pairs, tokeniser and encoded corpus are what a recipe asks for.

    The seed may differ: the run's own has then chosen the held-out pairs for both.
    """
    return all(
        getattr(run.recipe, table, None) == getattr(recipe, table, None) for table in _SHARED
    )


def share_preparation(run: Run, folder: Path, recipe: Recipe) -> None:
    """Make a new run with the prepared data of another, as links to the same files if it can be.

    Raises:
        UserError: the folder cannot be written.
    """
    with atomic_folder(folder, private=True) as made:
        for name in ("data", "tokeniser", "start"):
            if not (run.path / name).exists():
                continue  # not every run starts from another
            shutil.copytree(run.path / name, made / name, copy_function=_link)
        write_recipe(made, write_toml(recipe))
        write_facts(made, run.facts)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
    return target
