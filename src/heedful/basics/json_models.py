"""JSON objects that users write, read as pydantic models."""

from typing import Any, Self, TypeVar

from pydantic import BaseModel, PrivateAttr, ValidationError

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


class NamedInput(BaseModel):
    """An input with a name for messages; subclasses give a default, such as ``the sound``."""

    _where: str = PrivateAttr("the input")

    def named(self, where: str) -> Self:
        """The same input, with its name for messages."""
        self._where = where
        return self

    @property
    def where(self) -> str:
        """The input, for messages."""
        return self._where


def named(one: ModelT, where: str) -> ModelT:
    """An input with its name for messages, if inputs of its kind have names."""
    return one.named(where) if isinstance(one, NamedInput) else one


def first_problem(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first problem of a validation error, with its field."""
    problem = error.errors(include_url=False)[0]
    field = ".".join(map(str, problem["loc"]))
    message = problem["msg"].removeprefix("Value error, ")
    if field:
        return f"'{field}': {message[:1].lower()}{message[1:]}"
    fields = ", ".join(f'"{name}": …' for name in kind.model_fields)
    return f"{message}; give {{{fields}}}"
