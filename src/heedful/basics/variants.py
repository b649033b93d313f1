"""Settings that a table gives in one of several classes, chosen by a key of the table."""

import functools
from typing import Annotated, Any, ClassVar, Self, Union

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from heedful.basics.settings import Settings


class Variant(Settings):
    """Base of settings in several classes: one whose :meth:`variants` are not empty stands for
    them.

    Each of the classes has a field with the name ``chosen_by``, a literal with its default.
    """

    chosen_by: ClassVar[str] = "kind"
    """The key that chooses the class."""

    @model_validator(mode="wrap")
    @classmethod
    def _as_chosen(
        cls, given: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """Validate a table as the settings of the class that it chooses."""
        choices = cls.variants()
        if not choices or isinstance(given, cls):
            return handler(given)
        if not isinstance(given, dict):
            raise PydanticKnownError("model_attributes_type")
        key = cls.chosen_by
        if key in given:
            _refuse_unknown(key, given[key], [chosen(each, key) for each in choices])
        found: Self = _one_of(tuple(choices), key).validate_python(given, context=info.context)
        return found


def chosen(settings: type[Settings], key: str) -> str:
    """The value of the key ``chosen_by`` of one of several classes."""
    return str(settings.model_fields[key].default)


def _refuse_unknown(key: str, value: Any, known: list[str]) -> None:
    if value in known:
        return
    raise PydanticCustomError(
        "union_tag_invalid",
        "unknown kind",
        {
            "discriminator": f"'{key}'",
            "tag": str(value),
            "expected_tags": ", ".join(known),
            "hint": " (load a plug-in with --plugin FILE.py)",
        },
    )


@functools.lru_cache
def _one_of(choices: tuple[type[Settings], ...], key: str) -> TypeAdapter[Any]:
    """Validate a table as one of several classes."""
    if len(choices) == 1:
        return TypeAdapter(choices[0])
    one_of: Any = Annotated[Union[choices], Field(discriminator=key)]  # noqa: UP007
    return TypeAdapter(one_of)
