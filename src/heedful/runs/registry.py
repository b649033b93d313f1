"""The registered tasks. All tasks, heedful's own included, come from entry points.

A package adds a task or another part by an entry point of the group ``heedful.plugins`` that names
a module. The module registers its parts when it is imported.
"""

import difflib
import functools
import sys
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from heedful.basics.errors import UserError
from heedful.basics.files import content_hash
from heedful.runs.kind import Kind

if TYPE_CHECKING:
    from heedful.runs.settings import Recipe

GROUP = "heedful.plugins"
_kinds: dict[str, Kind] = {}
_loaded: dict[Path, str] = {}
"""Plug-in files that were imported, with their content hashes."""


def register(kind: Kind) -> None:
    """Add a task under its name. Registering the same task again has no effect.

    Raises:
        UserError: another task already has this name.
    """
    known = _kinds.setdefault(kind.name, kind)
    if type(known) is not type(kind):
        raise UserError(
            f"the task '{kind.name}' of {type(kind).__module__} is already registered by "
            f"{type(known).__module__}; give it another name"
        )


@functools.cache
def load_plugins() -> None:
    """Import the modules of all entry points, once per process.

    Raises:
        UserError: a module cannot be imported, or heedful is not installed.
    """
    found = sorted(entry_points(group=GROUP), key=lambda each: each.name)
    for each in found:
        try:
            each.load()
        except ImportError as error:
            raise UserError(
                f"the plug-in '{each.name}' ({each.value}) cannot be imported: {error}; update or "
                "uninstall its package"
            ) from error
    if not _kinds:
        raise UserError("no task is registered: install heedful again (pip install -e .)")


def load_file(path: str | Path) -> None:
    """Import a plug-in from a file, which registers its parts; importing it again has no effect.

    Args:
        path: a Python file. It runs with the rights of this process: use only trusted files.

    Raises:
        UserError: the file is missing or cannot be imported.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"no plug-in at {file}; --plugin needs a Python file")
    whole = file.resolve()
    if whole in _loaded and _loaded[whole] == content_hash(whole):
        return
    load_plugins()
    name = f"heedful_plugin_{file.stem}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{file} is not a Python file; --plugin needs one, such as my_task.py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except Exception as error:
        del sys.modules[name]
        line = [one.lineno for one in extract_tb(error.__traceback__) if one.filename == str(file)]
        where = f"{file}:{line[-1]}" if line else str(file)
        raise UserError(f"{where}: {type(error).__name__}: {error}") from error
    _loaded[whole] = content_hash(whole)


def loaded_files() -> list[Path]:
    """The plug-in files that were imported."""
    return list(_loaded)


def kinds() -> list[Kind]:
    """All tasks, sorted by their ``place``, then by name."""
    load_plugins()
    return sorted(_kinds.values(), key=lambda kind: (kind.place, kind.name))


def kind_named(task: str, where: str) -> Kind:
    """The task called ``task``.

    Raises:
        UserError: the task is unknown; the message starts with ``where`` and suggests the nearest
            one.
    """
    load_plugins()
    if task in _kinds:
        return _kinds[task]
    names = [kind.name for kind in kinds()]
    near = difflib.get_close_matches(str(task), names, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else f"known tasks: {', '.join(names)}"
    raise UserError(
        f"{where}: unknown task {task!r}; {hint} (load a plug-in with --plugin FILE.py)"
    )


def kind_of(recipe: "Recipe") -> Kind:
    """The task of a recipe."""
    return kind_named(recipe.task, "the recipe")
