"""Hashes of a run's files. Damaged or edited files are rejected.

``manifest.json`` lists the SHA-256 of files that are written once (``run.json``, the vocabulary,
the encoded corpus). Of an encoded corpus larger than 256 MiB it lists the index only, which has the
SHA-256 of each shard: training can begin before all of it was read. Files that are rewritten
contain their own hash: the first line of ``recipe.toml``, and the key ``sha256`` of
``result.json``, ``alignment.json``, ``calibration.json`` and each checkpoint's ``state.json``. Each
replacement is therefore one atomic write, and file and hash match even if the process is killed.

Hashes detect damage and edits. They are not signatures: anyone who can write a run can write them.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.basics.bounded_reading import MOST_TOML_BYTES, read_bytes, read_json
from heedful.basics.errors import UserError
from heedful.basics.files import as_json, atomic_file, content_hash, write_json, write_text
from heedful.basics.notices import notice

MANIFEST, FACTS, RECIPE = "manifest.json", "run.json", "recipe.toml"
SEALED_FILES = ("result.json", "alignment.json", "calibration.json")
"""Files of a run's folder that contain their own hash under the key `SEAL`."""
SEAL = "sha256"
_WRITTEN_ONCE = ("data", "imported", "tokeniser")
_STORE = "store.json"
MOST_HASHED_BYTES = 256 << 20
"""Size of an encoded corpus above which the manifest has the hash of its index only."""
_FORMAT = 1
_FIRST_LINE = "# SHA-256 of the lines below: "
_SEALED_RECIPE = re.compile(re.escape(_FIRST_LINE).encode() + rb"([0-9a-f]{64})\n", re.ASCII)
_reported: set[Path] = set()


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``manifest.json``, then ``run.json``, which makes the folder a run.

    Raises:
        UserError: the folder cannot be written.
    """
    content = as_json({**facts, "manifest": MANIFEST}).encode("utf-8")
    _write_manifest(folder, hashlib.sha256(content).hexdigest())
    with atomic_file(folder / FACTS) as file:
        file.write(content)


def _write_manifest(folder: Path, facts: str) -> None:
    paths = [
        path
        for name in _WRITTEN_ONCE
        for path in sorted((folder / name).rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]
    large = {path.parent for path in paths if path.name == _STORE and _is_large(path.parent)}
    found = {
        path.relative_to(folder).as_posix(): content_hash(path)
        for path in paths
        if path.parent not in large or path.name == _STORE
    }
    write_json(folder / MANIFEST, {"format": _FORMAT, "files": {FACTS: facts, **found}})


def _is_large(store: Path) -> bool:
    """Whether the files of an encoded corpus are verified one by one, when they are first read."""
    return sum(path.stat().st_size for path in store.iterdir()) > MOST_HASHED_BYTES


def read_manifest(folder: Path) -> dict[str, str] | None:
    """The hashes of the files that are written once, by path; None if the run has no manifest.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / MANIFEST
    if not path.exists():
        return None
    values = read_json(path)
    files = values.get("files")
    if (
        values.get("format") != _FORMAT
        or not isinstance(files, dict)
        or not all(isinstance(value, str) for value in files.values())
        or FACTS not in files
    ):
        raise UserError(f"{path}: not a list of a run's files; the file is damaged")
    return files


def require_unchanged(folder: Path, manifest: Mapping[str, str] | None, *names: str) -> None:
    """Raise UserError if a file is missing or differs from the one that was written.

    Args:
        folder: the run's folder.
        manifest: from `read_manifest`; if None, nothing is compared.
        names: files; or folders with a trailing slash, for all files in them.
    """
    for name, known in (manifest or {}).items():
        if not any(name == one or (one.endswith("/") and name.startswith(one)) for one in names):
            continue
        try:
            found = content_hash(folder / name)
        except OSError as error:
            raise UserError(f"cannot read {folder / name}: {error.strerror or error}") from error
        if found != known:
            raise changed(folder / name, folder)


def read_facts(folder: Path, manifest: Mapping[str, str] | None) -> dict[str, Any]:
    """The content of ``run.json``.

    Raises:
        UserError: it is missing, damaged or was changed, or its manifest is missing.
    """
    require_unchanged(folder, manifest, FACTS)
    facts = read_json(folder / FACTS)
    if manifest is None and "manifest" in facts:
        raise UserError(
            f"{folder / MANIFEST} is missing, so damaged files cannot be detected; restore it, or "
            f"accept the files as they are: heedful info {folder} --accept-changes"
        )
    if manifest is None and folder.resolve() not in _reported:
        _reported.add(folder.resolve())
        notice(
            f"{folder} has no hashes of its files, so damage cannot be detected; record hashes: "
            f"heedful info {folder} --accept-changes"
        )
    return facts


def changed(path: Path, run: Path) -> UserError:
    """The error for a file that differs from the one that was written."""
    return UserError(
        f"{path} has changed since heedful wrote it (its SHA-256 differs); restore it, or, if you "
        f"changed it on purpose: heedful info {run} --accept-changes"
    )


def write_recipe(folder: Path, text: str) -> None:
    """Write ``recipe.toml`` with the hash of ``text`` as its first line."""
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    write_text(folder / RECIPE, f"{_FIRST_LINE}{digest}\n{text}")


def read_recipe_text(folder: Path, *, sealed: bool) -> bytes:
    """The content of a run's ``recipe.toml``.

    Args:
        folder: the run's folder.
        sealed: whether the first line must be the hash.

    Raises:
        UserError: it is missing, too large, or was changed.
    """
    path = folder / RECIPE
    content = read_bytes(path, MOST_TOML_BYTES)
    found = _SEALED_RECIPE.match(content)
    right = found is not None and (
        hashlib.sha256(content[found.end() :]).hexdigest() == found[1].decode()
    )
    if sealed and not right:
        raise changed(path, folder)
    return content


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values together with their hash under the key `SEAL`."""
    plain = {key: value for key, value in values.items() if key != SEAL}
    return {**plain, SEAL: _digest(plain)}


def is_sealed(values: Mapping[str, Any]) -> bool:
    """Whether the values contain their hash."""
    plain = {key: value for key, value in values.items() if key != SEAL}
    return bool(values.get(SEAL) == _digest(plain))


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def read_sealed(folder: Path, name: str, *, sealed: bool) -> dict[str, Any]:
    """The content of one of `SEALED_FILES`.

    Raises:
        UserError: it is missing or damaged, or it is ``sealed`` and was changed.
    """
    values = read_json(folder / name)
    if sealed and not is_sealed(values):
        raise changed(folder / name, folder)
    return {key: value for key, value in values.items() if key != SEAL}


def write_sealed(folder: Path, name: str, values: Mapping[str, Any]) -> None:
    """Write one of `SEALED_FILES`."""
    write_json(folder / name, seal(values))


def seal_files(folder: Path) -> None:
    """Record the current hashes of a run's files; checkpoints keep theirs.

    Raises:
        UserError: a file with its own hash cannot be read, or the folder cannot be written.
    """
    text = read_recipe_text(folder, sealed=False)
    plain = text[found.end() :] if (found := _SEALED_RECIPE.match(text)) else text
    try:
        recipe = plain.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{folder / RECIPE}: not UTF-8 text; restore it") from error
    kept = [name for name in SEALED_FILES if (folder / name).exists()]
    values = {name: read_json(folder / name) for name in kept}
    write_recipe(folder, recipe)
    for name in kept:
        write_sealed(folder, name, values[name])
    _write_manifest(folder, content_hash(folder / FACTS))
