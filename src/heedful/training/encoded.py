"""Encoded corpora: what ``heedful data encode`` prepares, and how runs use it.

An encoded corpus is a run that was prepared and not trained: vocabulary, held-out examples, encoded
examples and facts. Another run copies what is small, and links to the encoded examples, in the same
file system by hard links, otherwise by the place of the store.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heedful.basics.bounded_reading import parse_json, read_json
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, cannot_write, remove_unfinished
from heedful.basics.urls import url_of
from heedful.data.remote_files import (
    is_remote_file,
    list_remote,
    open_remote,
    read_stream,
    require_remote,
)
from heedful.data.store_index import INDEX, link_store
from heedful.runs.manifest import FACTS, MANIFEST, RECIPE, write_facts, write_recipe
from heedful.runs.opening import open_run
from heedful.runs.recipe import write_toml
from heedful.runs.run import Run
from heedful.runs.settings import Recipe
from heedful.runs.shared_preparation import reads_words, teacher_name
from heedful.runs.start import Start
from heedful.training.resuming import flat

_DATA = "data"
_COPIED = (_DATA, "tokeniser", "start", "memory.jsonl")
"""The files and folders of a prepared run, besides its recipe and its facts. In the folder of the
data, a folder with an index is a store, which is not copied but linked to."""


def encoded_facts(place: Path | None) -> dict[str, Any] | None:
    """The facts of the encoded corpus in a folder or at a URL; None if there is none.

    Raises:
        UserError: there is nothing at the URL, it cannot be read, or the facts are damaged.
    """
    if place is None:
        return None
    url = url_of(place)
    if url is None:
        is_corpus = (place / FACTS).is_file() and bool(_stores(place))
        return read_json(place / FACTS) if is_corpus else None
    if not is_remote_file(f"{url}/{FACTS}"):
        require_remote(url)
        return None
    with read_stream(open_remote(f"{url}/{FACTS}"), url) as stream:
        facts = parse_json(stream.read(), f"{url}/{FACTS}")
    return facts if isinstance(facts, dict) else None


def use_encoded(folder: Path, recipe: Recipe, place: Path, start: Start | None) -> None:
    """Prepare a run in ``folder`` with the encoded corpus at ``place``, a folder or a URL.

    Raises:
        UserError: the corpus was encoded with other settings or for another start, or a file is
            missing, damaged, or cannot be read or written.
    """
    url = url_of(place)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".encoded-") as beside:
        local = place
        if url is not None:
            local = Path(beside)
            _fetch(url, local)
        corpus, stores = open_run(local), _stores(local)
        _require_same(corpus, recipe, start, str(place if url is None else url))
        _require_unchanged(corpus, stores if url is not None else [])
        remove_unfinished(folder / _DATA)
        try:
            for name in _COPIED:
                _copy(local / name, folder / name, [local / store for store in stores])
            for store in stores:
                (folder / store).mkdir(parents=True, exist_ok=True)
                if url is not None or not _hard_links(local / store, folder / store):
                    link_store(folder / store, place / store)
        except OSError as error:
            raise cannot_write(folder, error) from error
    data = {**corpus.facts["data"], "encoded": str(place.resolve() if url is None else url)}
    write_recipe(folder, write_toml(recipe))
    write_facts(folder, {**corpus.facts, "data": data})


def _stores(corpus: Path) -> list[Path]:
    """The folders of the stores of an encoded corpus, relative to its folder."""
    return sorted(path.parent.relative_to(corpus) for path in (corpus / _DATA).rglob(INDEX))


def _require_unchanged(corpus: Run, elsewhere: Sequence[Path]) -> None:
    """Raise UserError if a file differs from the one that was encoded.

    Args:
        corpus: the encoded corpus.
        elsewhere: stores of which there is the index only; their files are verified when they are
            first read.
    """
    shards = tuple(f"{store.as_posix()}/" for store in elsewhere)
    for name in corpus.manifest or {}:
        if name.startswith((f"{_DATA}/", "tokeniser/")) and (
            not name.startswith(shards) or name.endswith(f"/{INDEX}")
        ):
            corpus.require_unchanged(name)


def _require_same(corpus: Run, recipe: Recipe, start: Start | None, where: str) -> None:
    """Raise UserError unless a recipe would prepare this corpus."""
    prepared_by = recipe.prepared_by | corpus.recipe.prepared_by
    known, wanted = (
        flat({name: table for name in prepared_by if (table := own.get(name)) is not None})
        for own in (corpus.recipe.model_dump(mode="json"), recipe.model_dump(mode="json"))
    )
    for key in sorted(known.keys() | wanted.keys()):
        if known.get(key) != wanted.get(key):
            raise UserError(
                f"{where} was encoded with {key} = {known.get(key)!r}, the recipe has "
                f"{wanted.get(key)!r}; encode the corpus again (heedful data encode), or change "
                "the recipe"
            )
    first, second = (teacher_name(one) for one in (corpus.recipe, recipe))
    if first != second:
        raise UserError(
            f"{where} was encoded {_for(first, 'training.teacher')}, now it is to be used "
            f"{_for(second, 'training.teacher')}, whose tokeniser may be another; encode the "
            "corpus again"
        )
    if reads_words(recipe) and not reads_words(corpus.recipe):
        raise UserError(
            f"{where} was encoded for another kind of model, which does not make words of "
            "characters; encode the corpus again"
        )
    started = corpus.facts.get("started_from")
    if (started or {}).get("weights") != (start.facts if start else {}).get("weights"):
        begun = None if started is None else started["run"]
        raise UserError(
            f"{where} was encoded {_for(begun, '--start-from')}, now it is to be used "
            f"{_for(start.run.path if start else None, '--start-from')}, whose tokeniser may be "
            "another; encode the corpus with the same --start-from"
        )


def _for(run: object, option: str) -> str:
    return f"without {option}" if run is None else f"with {option} {run}"


def _copy(source: Path, target: Path, left: Sequence[Path]) -> None:
    """Copy a file or a folder, but none of the folders in ``left``, and no hidden files."""
    if source.is_dir():

        def ignored(folder: str, names: list[str]) -> list[str]:
            return [name for name in names if name[0] == "." or Path(folder, name) in left]

        shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored)
    elif source.is_file():
        shutil.copy2(source, target)


def _hard_links(source: Path, target: Path) -> bool:
    """Link all files of a folder; returns whether that is possible."""
    for path in sorted(source.iterdir()):
        linked = target / path.name
        linked.unlink(missing_ok=True)
        try:
            os.link(path, linked)
        except OSError:  # another file system, or hard links are not supported
            for made in target.iterdir():
                made.unlink()
            return False
    return True


def _fetch(url: str, folder: Path) -> None:
    """Fetch the files of an encoded corpus but its shards."""
    names = {file: file.removeprefix(url).lstrip("/") for file in list_remote(url)}
    stores = tuple(
        name.removesuffix(INDEX) for name in names.values() if name.endswith(f"/{INDEX}")
    )
    for file, name in names.items():
        wanted = name.startswith(tuple(f"{one}/" for one in _COPIED)) or name in (
            *_COPIED,
            FACTS,
            MANIFEST,
            RECIPE,
        )
        if not wanted or (name.startswith(stores) and not name.endswith(f"/{INDEX}")):
            continue
        with (
            read_stream(open_remote(file), file) as stream,
            atomic_file(folder / name) as target,
        ):
            shutil.copyfileobj(stream, target)
