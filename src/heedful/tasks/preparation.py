"""Preparing a run: finding and hashing files, writing facts; shared by all tasks."""

import hashlib
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.file_identity import file_identity, stream_identity
from heedful.basics.files import atomic_file
from heedful.basics.notices import notice
from heedful.basics.urls import url_of
from heedful.data.overlap import Overlap, count_overlap
from heedful.data.python_rows import are_rows
from heedful.data.readers.folders import FilesOf, is_folder, sizes_of
from heedful.data.remote_files import open_remote, size_of
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
LARGE = 1 << 30
"""Bytes of training files above which they are sampled: see `is_large`."""
Files = dict[str, list[str]]
"""The files of each part."""


def find_files(
    named: Mapping[str, Sequence[str]],
    data_folder: Path | None,
    spooled: Path,
    *,
    files_of: FilesOf | None = None,
) -> Files:
    """The files of each part, with paths that can be opened.

    Standard input can be read only once, but training reads its data several times, so it is copied
    to ``spooled``. With ``files_of``, a path may be a folder, a pattern or a URL.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    files = {
        part: find_data(paths, data_folder, files_of=files_of) for part, paths in named.items()
    }
    if "-" in files["train"]:
        with atomic_file(spooled) as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        files["train"] = [str(spooled)]
    return files


def is_large(files: Sequence[str], files_of: FilesOf | None = None) -> bool:
    """Whether training files have more than `LARGE` bytes, or a quarter of it if compressed.

    The vocabulary of a large corpus is learnt from a sample that is drawn before filtering, and its
    files are identified by their sizes and sampled blocks.
    """
    plain = [file for file in files if not are_rows([file])]
    found = [one for file in plain for one in sizes_of(file, files_of or _alone)]
    return sum(4 * size if name.endswith((".gz", ".xz")) else size for name, size in found) > LARGE


def _alone(path: str) -> list[Path]:
    return [Path(path)]


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
    files: Mapping[str, Sequence[str]], files_of: FilesOf | None = None
) -> dict[str, list[str]]:
    """The content hash of each file of each part.

    Args:
        files: the paths of each part.
        files_of: returns the files of a folder, a pattern or a URL, if a path can be one.
    """
    return {
        part: [_content_hash(Path(file), files_of) for file in paths]
        for part, paths in files.items()
    }


def _content_hash(path: Path, files_of: FilesOf | None) -> str:
    """The hash of a file, or of the names and contents of the files in a folder."""
    if files_of is None or not is_folder(path):
        return _identity(path)
    found = hashlib.sha256()
    base = path if path.is_dir() else path.parent
    for file in files_of(str(path)):
        name = file.relative_to(base).as_posix() if file.is_relative_to(base) else file.name
        found.update(f"{name}\0{_identity(file)}\n".encode())
    return found.hexdigest()


def _identity(path: Path) -> str:
    """The hash of a file, which may be at a URL."""
    url = url_of(path)
    if url is None:
        return file_identity(path)
    with open_remote(url) as stream:
        return stream_identity(stream, size_of(url))


def recipe_hashes(
    named: Mapping[str, Sequence[str]],
    vectors: Any,
    data_folder: Path | None,
    *,
    files_of: FilesOf | None = None,
) -> dict[str, list[str]]:
    """The content hashes of a recipe's files, which are compared when a run is resumed."""
    if any("-" in paths for paths in named.values()):
        return {}  # standard input cannot be read again
    found = {
        part: find_data(paths, data_folder, files_of=files_of) for part, paths in named.items()
    }
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
    overlaps = {}
    for part, texts in held_out.items():
        overlaps[part] = Overlap(texts)
        if texts:
            overlaps[part].found = count_overlap(training(), texts)
    return report_overlaps(overlaps, message)


def report_overlaps(
    overlaps: Mapping[str, Overlap], message: Callable[[str, int, int], str]
) -> dict[str, int]:
    """The numbers of `count_overlaps`, from what has seen all training texts; notices report them.

    Args:
        overlaps: by part; empty parts are omitted.
        message: see `count_overlaps`.
    """
    found = {part: overlap.found for part, overlap in overlaps.items() if overlap.total}
    for part, count in found.items():
        if count:
            about = message(part, count, overlaps[part].total)
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
