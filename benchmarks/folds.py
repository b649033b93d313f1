"""Ten folds of a file of labelled texts, for the cross-validation of Kim 2014."""

import random
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe
from heedful.tasks.texts.recipe import ClassificationRecipe

FOLDS = 10
SEED = 1


def make(data: Path, recipe: str, out: Path) -> None:
    """Write ``fold-N.train`` and ``fold-N.test`` for N from 0 to 9, if they are missing.

    Args:
        data: the folder of the file that the recipe names as ``data.train``.
        recipe: the recipe of a classifier with one example per line.
        out: the folder for the folds.

    Raises:
        UserError: the recipe has another task, or the file is missing.
    """
    settings = check_recipe(read_recipe(find_recipe(recipe)), recipe)
    if not isinstance(settings, ClassificationRecipe):
        raise UserError(f"{recipe} is not a classifier's recipe; folds need labelled texts")
    if (out / f"fold-{FOLDS - 1}.test").exists():
        return
    (name,) = settings.data.train
    path = data / name
    if not path.is_file():
        raise UserError(f"{path} does not exist")
    # As bytes: the folds keep the file's encoding, which the recipe names.
    lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    order = random.Random(SEED).sample(range(len(lines)), len(lines))
    for fold in range(FOLDS):
        held_out = set(order[fold::FOLDS])
        for part, wanted in (("train", False), ("test", True)):
            chosen = [line for at, line in enumerate(lines) if (at in held_out) == wanted]
            with atomic_file(out / f"fold-{fold}.{part}") as file:
                file.write(b"\n".join(chosen) + b"\n")
