"""The base of the settings of all models, and the settings of each family that are known."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, Union, get_args

from pydantic import Field, ModelWrapValidatorHandler, TypeAdapter, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError, PydanticKnownError
from torch import nn

from heedful.basics.settings import Settings

S = TypeVar("S", bound="ModelSettings")
builders: "dict[type[ModelSettings], Callable[..., nn.Module]]" = {}
"""Settings of a model → what builds it."""


class ModelSettings(Settings):
    """Base of the settings of all models.

    The settings of a model have a field ``kind``, a literal with its default, and ``max_length``,
    the longest sequence that it reads in tokens.
    """

    reads_any_length: ClassVar[bool] = False
    """Whether the parameters are the same for every ``max_length``."""
    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...

        @property
        def max_length(self) -> int: ...

    @classmethod
    def variants(cls) -> "list[type[ModelSettings]]":
        """For a family's base class: the settings of its models; otherwise empty."""
        return registered(cls) if ModelSettings in cls.__bases__ else []

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(
        cls, given: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """Validate a table as the settings of its kind."""
        choices = cls.variants()
        if not choices or isinstance(given, cls):
            return handler(given)
        if not isinstance(given, dict):
            raise PydanticKnownError("model_attributes_type")
        if "kind" in given:
            _refuse_unknown(given["kind"], list(map(kind_of, choices)))
        found: Self = _one_of(tuple(choices)).validate_python(given, context=info.context)
        return found


def registered(family: type[S]) -> list[type[S]]:
    """The settings of the models of a family, in the order of registration."""
    return [settings for settings in builders if issubclass(settings, family)]


def kind_of(settings: type[ModelSettings]) -> str:
    """The kind that recipes name."""
    return str(default_kind(settings))


def default_kind(settings: type[ModelSettings]) -> Any:
    """The default of the field ``kind``; None if it is no literal with its default."""
    field = settings.model_fields.get("kind")
    if field is None or get_args(field.annotation) != (field.default,):
        return None
    return field.default


def _refuse_unknown(kind: Any, known: list[str]) -> None:
    if kind in known:
        return
    raise PydanticCustomError(
        "union_tag_invalid",
        "unknown kind",
        {
            "discriminator": "'kind'",
            "tag": str(kind),
            "expected_tags": ", ".join(known),
            "hint": " (load a plug-in with --plugin FILE.py)",
        },
    )


@functools.lru_cache
def _one_of(choices: tuple[type[ModelSettings], ...]) -> TypeAdapter[Any]:
    """Validate a table as one of several kinds."""
    if len(choices) == 1:
        return TypeAdapter(choices[0])
    one_of: Any = Annotated[Union[choices], Field(discriminator="kind")]  # noqa: UP007
    return TypeAdapter(one_of)
