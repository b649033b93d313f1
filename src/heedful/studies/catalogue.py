"""The studies: those of this package, found by file name, and those of plug-ins."""

import difflib
import pkgutil
from importlib import import_module

import heedful.studies
from heedful.basics.errors import UserError
from heedful.runs.registry import load_plugins
from heedful.studies.study import Study

_registered: dict[str, Study] = {}


def register(study: Study) -> None:
    """Add the study of a plug-in. Registering the same study again has no effect.

    Raises:
        UserError: another study, or a module of this package, has this name.
    """
    if study.name in _own_names() or _registered.get(study.name, study) is not study:
        raise UserError(f"the name '{study.name}' of a study is taken; choose another one")
    _registered[study.name] = study


def studies() -> list[Study]:
    """All studies, by name."""
    load_plugins()
    own = (_own(name) for name in _own_names())
    found = {one.name: one for one in own if one is not None} | _registered
    return [found[name] for name in sorted(found)]


def study_named(name: str) -> Study:
    """The study called ``name``.

    Raises:
        UserError: there is none; the message suggests the nearest one.
    """
    load_plugins()
    found = _registered.get(name) or (_own(name) if name in _own_names() else None)
    if found is not None:
        return found
    names = [one.name for one in studies()]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else f"studies: {', '.join(names)}"
    raise UserError(f"no study '{name}'; {hint}")


def _own_names() -> list[str]:
    """The names of this package's modules."""
    return [one.name.replace("_", "-") for one in pkgutil.iter_modules(heedful.studies.__path__)]


def _own(name: str) -> Study | None:
    """The study of a module of this package; None if it has none."""
    found = getattr(import_module(f"heedful.studies.{name.replace('-', '_')}"), "STUDY", None)
    if isinstance(found, Study) and found.name != name:
        raise ValueError(f"the study of {name.replace('-', '_')}.py is called '{found.name}'")
    return found if isinstance(found, Study) else None
