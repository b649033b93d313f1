"""Typed settings that reject unknown keys and suggest the nearest known one."""

import difflib
from collections.abc import Sequence
from types import NoneType
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError, to_jsonable_python

from heedful.basics.errors import UserError

OFF = "off"
WRITTEN = "written"
"""Key of the validation context: whether heedful wrote the tables."""
RENAMED = "renamed"
"""The error type of settings that were renamed."""


class Settings(BaseModel):
    """Base of every table of a recipe; rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", validate_default=True, frozen=True)
    renamed: ClassVar[dict[str, str]] = {}
    """Old name → new name of renamed settings; old names are accepted only in files of heedful."""

    @classmethod
    def variants(cls) -> "Sequence[type[Settings]]":
        """The classes that a table of this type may have, by its ``kind``; empty if only one."""
        return []

    @model_validator(mode="wrap")
    @classmethod
    def _rename(
        cls, given: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        if isinstance(given, dict) and not cls.renamed.keys().isdisjoint(given):
            if not (info.context or {}).get(WRITTEN):
                old = next(key for key in given if key in cls.renamed)
                names = {"old": old, "new": cls.renamed[old]}
                raise PydanticCustomError(RENAMED, "{old} is now {new}", names)
            given = {cls.renamed.get(key, key): value for key, value in given.items()}
        return handler(given)

    @model_validator(mode="before")
    @classmethod
    def _read_off(cls, given: Any) -> Any:
        """Convert ``"off"`` to None: TOML has no null, and the setting has another default."""
        if not isinstance(given, dict):
            return given
        return {
            key: None if value == OFF and cls.can_be_off(key) else value
            for key, value in given.items()
        }

    @classmethod
    def can_be_off(cls, key: str) -> bool:
        """Whether a key may be None and has another default."""
        field = cls.model_fields.get(key)
        if field is None or field.is_required() or field.default is None:
            return False
        return NoneType in get_args(field.annotation)

    def as_tables(self) -> dict[str, Any]:
        """The settings as TOML tables, without those that are None by default."""
        tables: dict[str, Any] = {}
        for key in type(self).model_fields:
            own = getattr(self, key)
            if own is not None:
                tables[key] = _as_value(own)
            elif self.can_be_off(key):
                tables[key] = OFF
        return tables

    def as_value(self) -> Any:
        """The settings as the value of a key: a table, unless they have a shorter form."""
        return self.as_tables()


def _as_value(own: Any) -> Any:
    """A value of settings for TOML, where settings within it are tables."""
    if isinstance(own, Settings):
        return own.as_value()
    if isinstance(own, dict):
        return {name: _as_value(each) for name, each in own.items()}
    if isinstance(own, list | tuple):
        return [_as_value(each) for each in own]
    return to_jsonable_python(own)


T = TypeVar("T", bound=Settings)


def check(kind: type[T], values: dict[str, Any], where: str, *, written: bool = False) -> T:
    """Build ``kind`` from ``values``; an error names ``where``, the key and the nearest right key.

    Args:
        kind: the class of the table.
        values: the table.
        where: the file, for messages.
        written: whether heedful wrote the table: if so, names of earlier versions are accepted.

    Raises:
        UserError: a key is unknown or was renamed, or a value has the wrong type or is out of
            range.
    """
    try:
        return kind.model_validate(values, context={WRITTEN: written})
    except ValidationError as error:
        raise UserError(f"{where}: {explain(error, kind)}") from error


def explain(error: ValidationError, kind: type[BaseModel]) -> str:
    """One line for the first problem of a validation error."""
    problem = error.errors()[0]
    path = [str(part) for part in problem["loc"]]
    name, known = _resolve(kind, path)
    if problem["type"] == RENAMED:
        table = f"{name}." if name else ""
        return f"{table}{problem['ctx']['old']} is now {table}{problem['ctx']['new']}"
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(sorted(known))}"
        return f"unknown key '{name}'; {hint}"
    if problem["type"] == "missing":
        return f"'{name}' is missing; add it to the recipe or give it with --set {name}=…"
    if problem["type"].startswith("union_tag"):
        return _explain_tag(name, problem)
    message = problem["msg"].removeprefix("Value error, ")
    if not name:
        return message
    if isinstance(problem["input"], dict):
        return f"'{name}': {message}"
    return f"'{name}' = {problem['input']!r}: {message}"


def current_name(settings: Settings, key: str) -> str:
    """The current dotted name in ``settings`` of a key of an earlier version."""
    first, dot, rest = key.partition(".")
    name = settings.renamed.get(first, first)
    inner = getattr(settings, name, None)
    return name + dot + (current_name(inner, rest) if isinstance(inner, Settings) else rest)


def _explain_tag(name: str, problem: Any) -> str:
    """One line for a table whose ``kind`` is missing or unknown."""
    context = problem["ctx"]
    key = f"{name}.{context['discriminator'].strip(chr(39))}"
    known = [tag.strip("'") for tag in context.get("expected_tags", "").split(", ") if tag]
    if problem["type"] == "union_tag_not_found":
        return f"'{key}' is missing; it gives the kind of the table"
    near = difflib.get_close_matches(context["tag"], known, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else f"known kinds: {', '.join(known)}"
    return f"unknown '{key}' = '{context['tag']}'; {hint}{context.get('hint', '')}"


def _resolve(kind: type[BaseModel], path: list[str]) -> tuple[str, list[str]]:
    """The dotted name of an error's location in settings, and the known keys of its table.

    If a table may be of several kinds, pydantic inserts the name of the kind or of the task into
    the path; recipes do not have it there.
    """
    names: list[str] = []
    table: type[BaseModel] | None = kind
    choices: list[type[BaseModel]] = []
    entries: Any = None
    known: list[str] = []
    for part in path:
        chosen = [choice for choice in choices if part in _names(choice)]
        if chosen:
            table, choices = chosen[0], []
            continue
        names.append(part)
        if entries is not None:  # the key of a table of tables: any name
            choices, table, entries = _choices(entries), _table(entries), None
            continue
        known = list(table.model_fields) if table else []
        field = table.model_fields.get(part) if table else None
        inner = field.annotation if field else None
        if get_origin(inner) is dict:
            entries = get_args(inner)[1]
        table, choices = _table(inner), _choices(inner)
    return ".".join(names), known


def _table(annotation: Any) -> type[BaseModel] | None:
    """The class of a table, if the annotation is one."""
    is_table = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_table else None


def _choices(annotation: Any) -> list[type[BaseModel]]:
    """The classes of tables that an annotation allows."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    table = _table(annotation)
    if table is not None and issubclass(table, Settings):
        return list(table.variants())
    tables = filter(None, map(_table, get_args(annotation)))
    return [table for table in tables if _names(table)]


def _names(table: type[BaseModel]) -> set[Any]:
    """The names by which pydantic distinguishes a table from those of other kinds."""
    named = (table.model_fields.get(key) for key in ("kind", "task"))
    return {field.default for field in named if field is not None}
