"""The base of the settings of all models, and the settings of each family that are known."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

from torch import nn

from heedful.basics.variants import Variant

S = TypeVar("S", bound="ModelSettings")
builders: "dict[type[ModelSettings], Callable[..., nn.Module]]" = {}
"""Settings of a model → what builds it."""


class ModelSettings(Variant):
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
