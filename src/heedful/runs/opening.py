"""Opens a run's folder: verifies its files, then reads its recipe and facts."""

from pathlib import Path
from typing import Any

from heedful.basics.bounded_reading import parse_toml, read_json
from heedful.basics.errors import UserError
from heedful.basics.locking import locked
from heedful.runs.facts import check_facts
from heedful.runs.manifest import (
    FACTS,
    RECIPE,
    read_facts,
    read_manifest,
    read_recipe_text,
    seal_files,
)
from heedful.runs.recipe import check_recipe
from heedful.runs.registry import kind_named
from heedful.runs.run import FORMAT, Run


def open_run(path: str | Path) -> Run:
    """The run in a folder.

    Raises:
        UserError: the folder is missing, is not a run, or is a run of a later version; or one of
            its files is damaged or was changed since heedful wrote it.
    """
    folder = Path(path)
    _require_run(folder)
    manifest = read_manifest(folder)
    return _opened(folder, read_facts(folder, manifest), manifest)


def _require_run(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is not a run: it is a file, but a run is a folder")
    if not folder.is_dir():
        raise UserError(f"no run at {folder}: the folder does not exist")
    if not (folder / FACTS).exists():
        raise UserError(f"{folder} is not a run: it has no run.json (heedful train writes it)")


def _opened(folder: Path, facts: dict[str, Any], manifest: dict[str, str] | None) -> Run:
    """The run, with validated facts and recipe."""
    if facts.get("format") != FORMAT:
        raise UserError(
            f"{folder} is a run of format {facts.get('format')}, this version reads {FORMAT}; "
            "update heedful"
        )
    content = read_recipe_text(folder, sealed=manifest is not None)
    where = str(folder / RECIPE)
    recipe = check_recipe(parse_toml(content, where), where, written=True)
    kind = kind_named(recipe.task, where)
    check_facts(kind.facts_type(), facts, folder / FACTS)
    run = kind.run_type()(folder, recipe, facts, manifest)
    kind.check_run(run)
    return run


def accept_changes(path: str | Path) -> None:
    """Record the current hashes of a run's files, after an intended edit.

    Also adds hashes to a run of a version without them. Checkpoints keep theirs.

    Raises:
        UserError: the folder is not a run, its recipe or ``run.json`` is invalid, or it is being
            trained.
    """
    folder = Path(path)
    _require_run(folder)
    with locked(folder, doing="trained"):
        _opened(folder, read_json(folder / FACTS), None)
        seal_files(folder)
