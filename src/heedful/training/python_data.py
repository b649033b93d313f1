"""Training data from Python: rows are read once and written to files, which are trained on."""

import contextlib
import difflib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.data.python_rows import SUFFIX, write_rows
from heedful.runs.settings import Recipe

PARTS = ("train", "validation", "test")
Rows = Mapping[str, Any]
"""Part → rows; for a multi-task recipe, task → part → rows."""


def with_file_names(tables: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    """The tables of a recipe with the names of the files that `temporary_files` writes.

    Raises:
        UserError: there are no training rows, a part or a task is unknown, or the recipe names
            files of a part that has no rows.
    """
    if "tasks" not in tables:
        return {**tables, "data": _named(tables.get("data", {}), rows, "data", "")}
    tasks = dict(tables["tasks"])
    for name in [*tasks, *rows]:
        if name not in tasks or name not in rows:
            raise UserError(
                f"data has rows for {', '.join(map(repr, rows)) or 'nothing'}, the recipe has the "
                f"tasks {', '.join(map(repr, tasks))}: give {{task: {{part: rows}}}}"
            )
        own = _named(tasks[name].get("data", {}), rows[name], f"data[{name!r}]", f"{name}.")
        tasks[name] = {**tasks[name], "data": own}
    return {**tables, "tasks": tasks}


def _named(table: Mapping[str, Any], rows: Rows, where: str, before: str) -> dict[str, Any]:
    if not isinstance(rows, Mapping):
        raise UserError(f"{where} is a {type(rows).__name__}, not a mapping of parts to rows")
    for part in rows:
        if part not in PARTS:
            near = difflib.get_close_matches(str(part), PARTS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"the parts are {', '.join(PARTS)}"
            raise UserError(f"{where} has an unknown part '{part}'; {hint}")
    if "train" not in rows:
        raise UserError(f"{where} has no 'train': give the rows to train on")
    for part in PARTS:
        if part not in rows and table.get(part):
            raise UserError(
                f"the recipe has files for {part}, but {where} has no rows for it: give "
                f"{where}['{part}'], or remove the files from the recipe"
            )
    return {**table, **{part: [f"{before}{part}{SUFFIX}"] for part in rows}}


@contextlib.contextmanager
def temporary_files(recipe: Recipe, rows: Rows, folder: Path) -> Iterator[Path]:
    """Write the rows to files in a temporary folder within ``folder``; yields the temporary folder,
    the base of the recipe's relative paths.

    Raises:
        UserError: a row is invalid; the message names it.
    """
    with tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=folder) as place:
        for key, data in recipe.data_tables().items():
            name = key.removeprefix("tasks.").removesuffix("data").rstrip(".")
            own, where = (rows[name], f"data[{name!r}]") if name else (rows, "data")
            for part, (file, *_) in {part: data.files[part] for part in own}.items():
                form = data if part == "train" else data.held_out()
                write_rows(own[part], form.example_of, Path(place) / file, f"{where}['{part}']")
        yield Path(place)
