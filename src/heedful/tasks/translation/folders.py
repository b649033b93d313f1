"""Whole folders of documents: each file is translated to the same place of another folder."""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from heedful.basics.bounded_reading import read_json
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, content_hash, write_json
from heedful.basics.notices import notice
from heedful.runs.checkpoints import MODEL
from heedful.tasks.pairs.run import MEMORY, open_pair_run

RECORD = ".heedful-translated.json"
"""The file in the output folder that records the content hash of each translated file."""

Outcome = str
"""The outcome for a file: ``translated``, ``unchanged``, ``copied`` or ``refused``."""


class Result(Enum):
    """What was made of a file."""

    DONE = "translated"
    LACKING = "translated, and to be translated again by the next call"
    NO_DOCUMENT = "to be copied"


def translate_folder(
    source: Path, output: Path, key: str, translate: Callable[[Path, Path], Result]
) -> Counter[Outcome]:
    """Translate each file of a folder; hidden files and folders are left out.

    A file is skipped if its content and the translator have not changed since its last translation.
    A file that is not a document is copied. If a file cannot be translated, this is reported, and
    the others are translated.

    Args:
        source: the folder.
        output: the folder to write; created if it does not exist.
        key: identifies the translator and its options.
        translate: writes the translation of a file to a path.

    Raises:
        UserError: one folder is inside the other, or nothing can be written.
    """
    if output.resolve() == source.resolve() or source.resolve() in output.resolve().parents:
        raise UserError(f"{output} is inside {source}; give another folder as --output")
    known = _known(output, key)
    done: dict[str, str] = {}
    counts: Counter[Outcome] = Counter()
    for path in visible_files(source):
        name = path.relative_to(source).as_posix()
        place = output / name
        try:
            found = content_hash(path)
            if known.get(name) == found and place.exists():
                counts["unchanged"] += 1
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                result = translate(path, place)
                if result is Result.NO_DOCUMENT:
                    _copy(path, place)
                counts["copied" if result is Result.NO_DOCUMENT else "translated"] += 1
                if result is Result.LACKING:
                    continue
        except (UserError, OSError) as error:
            notice(str(error) if isinstance(error, UserError) else f"{path}: {error.strerror}")
            counts["refused"] += 1
            continue
        done[name] = found
        write_json(output / RECORD, {"translator": key, "files": done})
    return counts


def _copy(path: Path, place: Path) -> None:
    with path.open("rb") as read, atomic_file(place) as write:
        shutil.copyfileobj(read, write)


def translator_key(runs: Sequence[Path], checkpoint: str | None, options: Any) -> str:
    """A hash of everything that affects translations: weights, memory and options.

    Args:
        runs: the run, and the others of its ensemble.
        checkpoint: the checkpoint that is used; the chosen one if None.
        options: search options and others.
    """
    found = hashlib.sha256(repr(options).encode())
    for run in runs:
        found.update(hash_of_model(run, checkpoint).encode())
    memory = runs[0] / MEMORY
    if memory.is_file():
        found.update(content_hash(memory).encode())
    return found.hexdigest()


def hash_of_model(path: Path, checkpoint: str | None) -> str:
    """A hash of a run's facts and of its checkpoint's weights, or of an export's files."""
    if (path / "run.json").exists():
        files = [path / "run.json", open_pair_run(path).chosen(checkpoint).path / MODEL]
    else:
        files = list(visible_files(path))
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.name} {content_hash(file)}\n".encode())
    return whole.hexdigest()


def visible_files(folder: Path) -> Iterator[Path]:
    """The files of a folder and of its folders, sorted, without hidden ones."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _known(output: Path, key: str) -> dict[str, str]:
    """Name of a file → content hash at its last translation."""
    path = output / RECORD
    if not path.exists():
        return {}
    record = read_json(path)
    files = record.get("files")
    if record.get("translator") != key or not isinstance(files, dict):
        return {}
    return {str(name): str(found) for name, found in files.items()}
