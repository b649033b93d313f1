"""The recipe: all settings of a run, typed, read from TOML and written to it."""

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
from heedful.basics.urls import url_of
from heedful.data.python_rows import are_rows
from heedful.data.readers.folders import FilesOf, is_pattern, require_files
from heedful.runs.kind import Kind
from heedful.runs.registry import kind_named
from heedful.runs.search_space import refuse_unsearchable
from heedful.runs.settings import CompareSettings, Recipe

DEFAULT = "translation"
"""The task of a recipe without ``task``."""
_WRITTEN_WITH = {"recipe.toml": "run.json", "best.toml": "tuning.json"}
"""The folder of a run's recipe and the files that heedful writes with it."""


def tables_of(recipe: str | Path | Recipe | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The tables of a recipe and its description for messages.

    Raises:
        UserError: see :func:`find_recipe` and :func:`read_recipe`.
    """
    if isinstance(recipe, str | Path):
        path = find_recipe(recipe)
        return read_recipe(path), str(path)
    return recipe if isinstance(recipe, Mapping) else recipe.as_tables(), "the recipe"


def read_recipe(path: Path, base: str | None = None) -> dict[str, Any]:
    """The tables of a TOML file, merged over those of its ``base``, if any.

    With ``base``, over those of this recipe instead. A base is the name of a recipe, or a path
    relative to the file that contains it. Settings of a file that an earlier version of heedful
    wrote are renamed to their current names.

    Raises:
        UserError: the file or a base is missing, not UTF-8 or not TOML (with the line), or bases
            form a cycle.
    """
    tables = _read_toml(path)
    if base is not None:
        tables["base"] = base
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
    if path.name in _WRITTEN_WITH and (path.parent / _WRITTEN_WITH[path.name]).exists():
        return check_recipe(tables, str(path), written=True).as_tables()
    return tables


def _find_base(base: Any, below: Path) -> Path:
    if not isinstance(base, str):
        raise UserError(f"{below}: base = {base!r}: expected a recipe's name or path")
    beside = below.parent / base
    return find_recipe(beside if beside.suffix == ".toml" else base).resolve()


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two tables; ``above`` takes precedence, and replaces a table of another kind."""
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
    """A recipe file, or a built-in recipe by name.

    Raises:
        UserError: neither exists.
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
    """``tables`` with each ``key=value`` of ``--set``; a value is TOML, or text if it is not.

    Raises:
        UserError: an override has no ``=``, or part of its key is not a table.
    """
    result: dict[str, Any] = _copy(tables)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise UserError(f"--set {override}: expected key=value, as in training.max_steps=500")
        result = with_setting(result, key.strip(), read_value(text), f"--set {override}")
    return result


def read_value(text: str) -> Any:
    """The value of a setting from the command line: TOML, or the text itself if it is not TOML.

    Example:
        >>> read_value("0.1"), read_value("dot"), read_value('["a", 1]')
        (0.1, 'dot', ['a', 1])
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def with_setting(tables: Mapping[str, Any], key: str, value: Any, where: str) -> dict[str, Any]:
    """``tables`` with one setting changed, by its dotted key.

    A name that stands for a table becomes the table: ``score = "additive"`` is
    ``score = {name = "additive"}``.

    Raises:
        UserError: part of the key is not a table; the message starts with ``where``.
    """
    result: dict[str, Any] = _copy(tables)
    table = result
    *tables_of_key, last = key.split(".")
    for part in tables_of_key:
        if isinstance(table.get(part), str):
            table[part] = {"name": table[part]}
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UserError(f"{where}: '{part}' is not a table")
    table[last] = value
    return result


def _copy(value: Any) -> Any:
    return {k: _copy(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def check_recipe(tables: Mapping[str, Any], where: str, *, written: bool = False) -> Recipe:
    """Validate ``tables`` as a recipe; errors name ``where`` and the key.

    Args:
        tables: the settings.
        where: the file, for messages.
        written: whether heedful wrote them. Such recipes contain all settings of their version,
            including those that have no effect; these are reset to the current defaults. Old names
            of settings are accepted.

    Raises:
        UserError: a key is unknown (the message suggests the nearest one) or missing, or a value is
            invalid; this includes searched keys and both ends of their ranges.
    """
    kind = recipe_kind(tables, where)
    if written:
        tables = _kind(tables, where).without_unused(tables, where)
    recipe = check(kind, dict(tables), where, written=written)
    plain = without_searches(tables)
    for key, searched in recipe.tune.items():
        place = f"{where}, [tune]"
        refuse_unsearchable(key, searched.ends(), place)
        for value in searched.ends():
            check(kind, with_setting(plain, key, value, place), place)
    return recipe


def without_searches(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a recipe without those that only searches and comparisons read."""
    return {key: table for key, table in tables.items() if key not in ("tune", "compare")}


def compare_settings(tables: Mapping[str, Any], where: str) -> CompareSettings:
    """The table ``[compare]`` of a recipe.

    Raises:
        UserError: a key is unknown, or a value is invalid.
    """
    given = tables.get("compare", {})
    if not isinstance(given, Mapping):
        raise UserError(f"{where}: 'compare' is not a table")
    return check(CompareSettings, dict(given), f"{where}, [compare]")


def recipe_kind(tables: Mapping[str, Any], where: str) -> type[Recipe]:
    """The recipe class of the task in ``tables``.

    Raises:
        UserError: the task is unknown; the message suggests the nearest one.
    """
    return _kind(tables, where).recipe_type()


def _kind(tables: Mapping[str, Any], where: str) -> Kind:
    return kind_named(tables.get("task", DEFAULT), where)


def write_toml(recipe: Recipe) -> str:
    """The recipe as TOML with every setting, so that later defaults do not change it."""
    document = tomlkit.document()
    document.add(
        tomlkit.comment("All settings of this run. Written by heedful; see docs/recipes.md.")
    )
    for key, value in recipe.as_tables().items():
        document[key] = value
    return tomlkit.dumps(document)


def find_data(
    paths: Sequence[str], folder: Path | None, *, files_of: FilesOf | None = None
) -> list[str]:
    """``paths``, relative to ``folder`` if it is given.

    A file ``train.tsv`` that does not exist may be packed: ``train.tsv.xz`` or ``train.tsv.gz``.

    Args:
        paths: files, or ``-`` for standard input.
        folder: the base of relative paths.
        files_of: returns the files of a folder, a pattern or a URL; None if a path can only be
            that of a file.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    found = []
    for path in paths:
        if path == "-":
            found.append(path)
            continue
        whole = _packed(Path(path) if folder is None or url_of(path) else folder / path)
        if files_of is not None and (url_of(whole) is not None or is_pattern(whole)):
            require_files(whole, files_of)
            found.append(url_of(whole) or str(whole))
            continue
        if are_rows([path]) and not whole.is_file():
            raise UserError(
                f"data file {whole} was rows of Python data: give them again, as data= of "
                "heedful.train"
            )
        if not whole.is_file() and not (files_of is not None and whole.is_dir()):
            what = "is a folder" if whole.is_dir() else "does not exist"
            raise UserError(
                f"data file {whole} {what}; correct its path (with a recipe, --data DIR is the "
                "base of relative paths)"
            )
        if not os.access(whole, os.R_OK):
            raise UserError(f"data file {whole} cannot be read: permission denied")
        found.append(str(whole))
    return found


def _packed(path: Path) -> Path:
    """The path, or that of the same file packed by xz or gzip if only this one exists."""
    if url_of(path) is not None:
        return path
    packed = [Path(f"{path}{ending}") for ending in (".xz", ".gz")]
    return path if path.exists() else next((one for one in packed if one.is_file()), path)
