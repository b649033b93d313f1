"""Parts that recipes name: each has a name and, if it has any, settings of its own.

A family of parts, such as the scores, has a base class of settings. A table of this type is
validated as the settings of the part that it names. A table that gives only the name can be written
as the name: ``score = "additive"`` is ``score = {name = "additive"}``.
"""

import difflib
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import (
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    create_model,
    model_serializer,
    model_validator,
)

from heedful.basics.errors import UserError
from heedful.basics.settings import Settings, explain

P = TypeVar("P", bound="PartSettings")


class PartSettings(Settings):
    """Base of the settings of parts.

    The base class of a family sets ``parts``. The settings of a part set ``name``, a literal with
    its default, and build the part.
    """

    parts: ClassVar["Parts[Any] | None"] = None
    """The parts of the family, for its base class; each part's own class has the same."""
    function: ClassVar[Any] = None
    """The function that builds the part, if a plug-in has registered one."""
    name: str

    @model_validator(mode="wrap")
    @classmethod
    def _by_name(
        cls, given: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """Validate a name, or a table with a name, as the settings of the part."""
        if isinstance(given, str):
            given = {"name": given}
        if cls.parts is None or "parts" not in vars(cls) or isinstance(given, cls):
            return handler(given)
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise ValueError(f"a {cls.parts.what} is a name, or a table with a name")  # noqa: TRY004
        kind = cls.parts[cls.parts.known(given["name"])]
        try:
            found: Self = kind.model_validate(given, context=info.context)
        except ValidationError as error:
            raise ValueError(explain(error, kind)) from error
        return found

    @model_serializer
    def _dump(self) -> Any:
        return self.as_value()

    def as_value(self) -> Any:
        """The name alone, if all other settings have their defaults; otherwise a table."""
        table = self.as_tables()
        other = any(
            getattr(self, key) != field.get_default(call_default_factory=True)
            for key, field in type(self).model_fields.items()
            if key != "name"
        )
        return table if other else self.name

    def __str__(self) -> str:
        value = self.as_value()
        return value if isinstance(value, str) else str(value)


class Parts(dict[str, type[P]], Generic[P]):
    """The settings of the parts of a family, by name.

    Args:
        what: the kind of part, for messages.

    Example:
        >>> Parts("score").known("dot")
        Traceback (most recent call last):
        ValueError: unknown score 'dot'; known names:  (load a plug-in with --plugin FILE.py)
    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def add(self, name: str, build: Any, made: type[P]) -> None:
        """Add a part. Adding the same part again has no effect.

        Args:
            name: the name in recipes.
            build: its settings, or a function that builds it.
            made: the base class of the settings of parts that functions build; they get the
                function as the class variable ``function``.

        Raises:
            UserError: another part already has this name.
        """
        known = self.get(name)
        if known is not None and build not in (known, known.function):
            raise UserError(
                f"the {self.what} '{name}' of {build.__module__} is already registered by "
                f"{(known.function or known).__module__}; give it another name"
            )
        if known is None:
            self[name] = build if isinstance(build, type) else _made(name, build, made)

    def known(self, name: str) -> str:
        """Return the name of a registered part.

        Raises:
            ValueError: the name is unknown; the message suggests the nearest one.
        """
        if name in self:
            return name
        near = difflib.get_close_matches(name, self, n=1, cutoff=0.6)
        hint = f"did you mean '{near[0]}'?" if near else f"known names: {', '.join(self)}"
        raise ValueError(
            f"unknown {self.what} '{name}'; {hint} (load a plug-in with --plugin FILE.py)"
        )


def _made(name: str, build: Callable[..., Any], base: type[P]) -> type[P]:
    """The settings of a part that a function builds: only its name."""
    fields: Any = {"name": (Literal[name], name)}
    kind: type[P] = create_model(name, __base__=base, **fields)
    kind.function = staticmethod(build)
    return kind
