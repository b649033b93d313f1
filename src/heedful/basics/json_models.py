"""JSON objects that users write, read as pydantic models."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from heedful.basics.errors import UserError

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_object(kind: type[ModelT], given: str | dict[str, Any], where: str) -> ModelT:
    """Parse a JSON object, given as text or as a dictionary, as an instance of ``kind``.

    Args:
        kind: the pydantic model.
        given: the object.
        where: its description in messages.

    Raises:
        UserError: it is not a JSON object, or a field is missing, unknown or of the wrong type.
    """
    try:
        if isinstance(given, str):
            return kind.model_validate_json(given)
        return kind.model_validate(given)
    except ValidationError as error:
        raise UserError(f"{where}: {first_problem(error, kind)}") from error


def named(one: ModelT, where: str) -> ModelT:
    """An input with its name for messages, if inputs of its kind have names (sounds, images)."""
    return one.named(where) if hasattr(one, "named") else one


def first_problem(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first problem of a validation error, with its field."""
    problem = error.errors(include_url=False)[0]
    field = ".".join(map(str, problem["loc"]))
    message = problem["msg"].removeprefix("Value error, ")
    if field:
        return f"'{field}': {message[:1].lower()}{message[1:]}"
    fields = ", ".join(f'"{name}": …' for name in kind.model_fields)
    return f"{message}; give {{{fields}}}"
