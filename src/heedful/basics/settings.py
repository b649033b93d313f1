"""Typed settings that refuse what they do not know, with the nearest right name."""

import difflib
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from heedful.basics.errors import UserError


class Settings(BaseModel):
    """Base of every table of a recipe: unknown keys are refused, values are not coerced wildly."""

    model_config = ConfigDict(extra="forbid", validate_default=True, frozen=True)


T = TypeVar("T", bound=Settings)


def check(kind: type[T], values: dict[str, Any], where: str) -> T:
    """Build ``kind`` from ``values``; an error names ``where``, the key and the nearest right key.

    Raises:
        UserError: a key is unknown or a value is of the wrong type or out of range.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{where}: {explain(error, kind)}") from error


def explain(error: ValidationError, kind: type[BaseModel]) -> str:
    """One line for the first problem of a validation error."""
    problem = error.errors()[0]
    path = [str(part) for part in problem["loc"]]
    name = ".".join(path)
    if problem["type"] == "extra_forbidden":
        known = _keys_at(kind, path[:-1])
        near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(sorted(known))}"
        return f"unknown key '{name}'; {hint}"
    if problem["type"] == "missing":
        return f"'{name}' is missing; add it to the recipe or give it with --set {name}=…"
    message = problem["msg"].removeprefix("Value error, ")
    return f"'{name}' = {problem['input']!r}: {message}"


def _keys_at(kind: type[BaseModel], path: list[str]) -> list[str]:
    for part in path:
        field = kind.model_fields.get(part)
        inner = field.annotation if field else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        kind = inner
    return list(kind.model_fields)
