"""The recipe: all settings of a run, typed, from TOML and back."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomlkit

from heedful.basics.bounded_reading import MOST_TOML_BYTES, parse_toml, read_bytes
from heedful.basics.errors import UserError
from heedful.basics.settings import check
from heedful.data.python_rows import are_rows
from heedful.runs.kind import Kind
from heedful.runs.registry import kind_named
from heedful.runs.search_space import refuse_unsearchable
from heedful.runs.settings import Recipe

DEFAULT = "translation"
"""The task of a recipe that names none."""
_BESIDE = {"recipe.toml": "run.json", "best.toml": "tuning.json"}
"""Recipes that heedful writes, and what it writes beside them."""


def tables_of(recipe: str | Path | Recipe | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The tables of a recipe, and what messages call it.

    Raises:
        UserError: as :func:`find_recipe` and :func:`read_recipe`.
    """
    if isinstance(recipe, str | Path):
        path = find_recipe(recipe)
        return read_recipe(path), str(path)
    return recipe if isinstance(recipe, Mapping) else recipe.as_tables(), "the recipe"


def read_recipe(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, put over those of its ``base``, if it names one.

    A base is a recipe's name, or a path from the folder of the file that names it. Settings in a
    file that an earlier version of heedful wrote get the names that they have now.

    Raises:
        UserError: the file or a base is missing, no UTF-8, or no TOML (with the line), or recipes
            are each other's base.
    """
    tables = _read_toml(path)
    seen = [path.resolve()]
    while (base := tables.pop("base", None)) is not None:
        where = _find_base(base, seen[-1])
        if where in seen:
            raise UserError(f"{path}: its base {where} leads back to it; remove one 'base'")
        seen.append(where)
        tables = _over(_read_toml(where), tables)
    return tables


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise UserError(f"no recipe at {path}")
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a recipe")
    tables = parse_toml(read_bytes(path, MOST_TOML_BYTES), str(path))
    if path.name in _BESIDE and (path.parent / _BESIDE[path.name]).exists():
        return check_recipe(tables, str(path), written=True).as_tables()
    return tables


def _find_base(base: Any, below: Path) -> Path:
    if not isinstance(base, str):
        raise UserError(f"{below}: base = {base!r}: expected a recipe's name or path")
    beside = below.parent / base
    return find_recipe(beside if beside.suffix == ".toml" else base).resolve()


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables' keys; where both have one, that of ``above``. Another kind is another table."""
    if "kind" in above and above["kind"] != below.get("kind", above["kind"]):
        return dict(above)
    joined = dict(below)
    for key, value in above.items():
        known = joined.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            value = _over(known, value)
        joined[key] = value
    return joined


def find_recipe(name: str | Path) -> Path:
    """A recipe file, or one of those that come with the package, by name.

    Raises:
        UserError: there is neither.
    """
    path = Path(name)
    if path.exists() or path.suffix == ".toml":
        return path
    folder = Path(str(files("heedful"))) / "recipes"
    packaged = folder / f"{name}.toml"
    if packaged.exists():
        return packaged
    names = ", ".join(sorted(file.stem for file in folder.glob("*.toml")))
    raise UserError(f"no recipe '{name}': neither a file nor a built-in recipe ({names})")


def with_overrides(tables: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """``tables`` with each ``key=value`` of ``--set`` put in; a value is TOML, or else text.

    Raises:
        UserError: an override has no ``=``, or goes through something that is no table.
    """
    result: dict[str, Any] = _copy(tables)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise UserError(f"--set {override}: expected key=value, as in training.max_steps=500")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        result = with_setting(result, key.strip(), value, f"--set {override}")
    return result


def with_setting(tables: Mapping[str, Any], key: str, value: Any, where: str) -> dict[str, Any]:
    """``tables`` with one setting put in, by its dotted key.

    Raises:
        UserError: the key goes through something that is no table; ``where`` is named.
    """
    result: dict[str, Any] = _copy(tables)
    table = result
    *tables_of_key, last = key.split(".")
    for part in tables_of_key:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UserError(f"{where}: '{part}' is not a table")
    table[last] = value
    return result


def _copy(value: Any) -> Any:
    return {k: _copy(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def check_recipe(tables: Mapping[str, Any], where: str, *, written: bool = False) -> Recipe:
    """The recipe of ``tables``; an error names ``where`` and the key.

    Args:
        tables: the settings.
        where: the file, for messages.
        written: whether heedful wrote them. Then they have all settings there were, also of what
            this recipe does not use; these are as today's defaults are. Settings may have the names
            of an earlier version.

    Raises:
        UserError: a key is unknown (with the nearest right one), missing, or of a wrong value; so
            too for a key that is searched, and each end of its range.
    """
    kind = recipe_kind(tables, where)
    if written:
        tables = _kind(tables, where).without_unused(tables, where)
    recipe = check(kind, dict(tables), where, written=written)
    plain = {key: table for key, table in tables.items() if key != "tune"}
    for key, searched in recipe.tune.items():
        place = f"{where}, [tune]"
        refuse_unsearchable(key, place)
        for value in searched.ends():
            check(kind, with_setting(plain, key, value, place), place)
    return recipe


def recipe_kind(tables: Mapping[str, Any], where: str) -> type[Recipe]:
    """The class of recipes that a task has.

    Raises:
        UserError: there is no such task; the nearest is named.
    """
    return _kind(tables, where).recipe_type()


def _kind(tables: Mapping[str, Any], where: str) -> Kind:
    return kind_named(tables.get("task", DEFAULT), where)


def write_toml(recipe: Recipe) -> str:
    """The recipe as TOML, with every setting, so that later defaults do not change it."""
    document = tomlkit.document()
    document.add(
        tomlkit.comment("All settings of this run. Written by heedful; see docs/recipes.md.")
    )
    for key, value in recipe.as_tables().items():
        document[key] = value
    return tomlkit.dumps(document)


def find_data(paths: Sequence[str], folder: Path | None) -> list[str]:
    """``paths`` as they can be opened: under ``folder`` where one is given.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    found = []
    for path in paths:
        if path == "-":
            found.append(path)
            continue
        whole = Path(path) if folder is None else folder / path
        if are_rows([path]) and not whole.is_file():
            raise UserError(
                f"data file {whole} was rows of Python data: give them again, as data= of "
                "heedful.train"
            )
        if not whole.is_file():
            what = "is a folder" if whole.is_dir() else "does not exist"
            raise UserError(
                f"data file {whole} {what}; correct its path (with a recipe, --data DIR is the "
                "base of relative paths)"
            )
        if not os.access(whole, os.R_OK):
            raise UserError(f"data file {whole} cannot be read: permission denied")
        found.append(str(whole))
    return found
