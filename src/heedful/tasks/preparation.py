"""Preparing a run: finding and hashing files, writing facts; shared by all tasks."""

import hashlib
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, content_hash
from heedful.basics.notices import notice
from heedful.data.overlap import count_overlap
from heedful.data.readers.folders import bilingual_files
from heedful.data.vocabulary import Vocabulary
from heedful.runs.checkpoints import save_checkpoint
from heedful.runs.manifest import write_facts, write_recipe
from heedful.runs.recipe import find_data, write_toml
from heedful.runs.run import FORMAT, Run
from heedful.runs.settings import FileSettings
from heedful.runs.start import Start, versions_and_machine
from heedful.runs.vectors import VectorFile, vector_hashes, write_vectors
from heedful.tasks.teaching import facts_of_teacher

HELD_OUT = ("validation", "test")
Files = dict[str, list[str]]
"""The files of each part."""


def find_files(
    named: Mapping[str, Sequence[str]],
    data_folder: Path | None,
    spooled: Path,
    *,
    folders: bool = False,
) -> Files:
    """The files of each part, with paths that can be opened.

    Standard input can be read only once, but training reads its data several times, so it is copied
    to ``spooled``. With ``folders``, a path may be a folder of bilingual files.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    files = {part: find_data(paths, data_folder, folders=folders) for part, paths in named.items()}
    if "-" in files["train"]:
        with atomic_file(spooled) as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        files["train"] = [str(spooled)]
    return files


def held_out_shares(files: Files, data: FileSettings) -> dict[str, float]:
    """The share of the training examples that is held out for each part without files."""
    shares = (data.validation_share, data.test_share)
    return {
        part: 0.0 if files[part] else share for part, share in zip(HELD_OUT, shares, strict=True)
    }


def require_some(examples: Sequence[Any], files: Sequence[str], part: str) -> None:
    """Raise UserError if the files of a part, named by its setting, contain no example."""
    if files and not examples:
        raise UserError(f"{part}: {', '.join(files)} is empty")


def content_hashes(
    files: Mapping[str, Sequence[str]], files_of: Callable[[str], list[Path]] = bilingual_files
) -> dict[str, list[str]]:
    """The content hash of each file of each part.

    Args:
        files: the paths of each part.
        files_of: the files that are read in a folder.
    """
    return {
        part: [_content_hash(Path(file), files_of) for file in paths]
        for part, paths in files.items()
    }


def _content_hash(path: Path, files_of: Callable[[str], list[Path]]) -> str:
    """The hash of a file, or of the names and contents of the files in a folder."""
    if not path.is_dir():
        return content_hash(path)
    found = hashlib.sha256()
    for file in files_of(str(path)):
        found.update(f"{file.relative_to(path).as_posix()}\0{content_hash(file)}\n".encode())
    return found.hexdigest()


def recipe_hashes(
    named: Mapping[str, Sequence[str]],
    vectors: Any,
    data_folder: Path | None,
    *,
    folders: bool = False,
    files_of: Callable[[str], list[Path]] = bilingual_files,
) -> dict[str, list[str]]:
    """The content hashes of a recipe's files, which are compared when a run is resumed."""
    if any("-" in paths for paths in named.values()):
        return {}  # standard input cannot be read again
    found = {part: find_data(paths, data_folder, folders=folders) for part, paths in named.items()}
    return content_hashes(found, files_of) | vector_hashes(vectors, data_folder)


def count_overlaps(
    training: Callable[[], Iterable[str]],
    held_out: Mapping[str, Sequence[str]],
    message: Callable[[str, int, int], str],
) -> dict[str, int]:
    """Count the held-out texts of each part that are also in the training data; notices report it.

    Args:
        training: returns the training texts; called once for each part.
        held_out: the texts of each part.
        message: the notice, from a part, the number found and the number of texts.
    """
    found = {}
    for part, texts in held_out.items():
        if texts:
            found[part] = count_overlap(training(), texts)
            if found[part]:
                about = message(part, found[part], len(texts))
                notice(f"{about}; scores on them are too optimistic")
    return found


def save_vectors(
    path: Path, recipe: Any, vocabularies: Callable[[str], Vocabulary], data_folder: Path | None
) -> dict[str, Any] | None:
    """Store pre-trained vectors of the vocabularies' words in a run.

    Args:
        path: the run's folder.
        recipe: names the files of vectors, if any.
        vocabularies: name of an embedding table → its vocabulary.
        data_folder: the base of relative paths.

    Returns:
        The share of words that have a vector, for ``run.json``; None without vectors.
    """
    if recipe.vectors is None:
        return None
    given = {
        name: VectorFile(file, vocabularies(name)) for name, file in recipe.vectors.files.items()
    }
    return write_vectors(path, given, recipe.model, data_folder)


def write_run(
    path: Path,
    recipe: Any,
    about: Mapping[str, Any],
    vectors: Mapping[str, Any] | None,
    start: Start | None,
    kept: Mapping[str, Any],
) -> None:
    """Write the recipe, the weights that training starts from, and finally ``run.json``.

    Args:
        path: the run's folder.
        recipe: all settings.
        about: the facts of the task: data, vocabulary and the like.
        vectors: the result of :func:`save_vectors`.
        start: the run that this one starts from.
        kept: the weights that are taken from it.
    """
    write_recipe(path, write_toml(recipe))
    facts = {
        "format": FORMAT,
        "task": recipe.task,
        "made_with": versions_and_machine(),
        **about,
        "vectors": vectors,
        "started_from": None if start is None else start.facts,
        "teacher": facts_of_teacher(recipe),
    }
    if start is not None:
        state = {"step": 0, "validation": {}}
        save_checkpoint(Run(path, recipe, facts).start_folder, dict(kept), {}, state)
    write_facts(path, facts)
