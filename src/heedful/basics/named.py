"""Registries of parts by the names that recipes use; plug-ins add theirs."""

import difflib
from collections.abc import Callable
from typing import Any, TypeVar

from heedful.basics.errors import UserError

B = TypeVar("B", bound=Callable[..., Any])


class Named(dict[str, B]):
    """The builders of one kind of part by name.

    Args:
        what: the kind of part, for messages.
        builders: heedful's own builders.

    Example:
        >>> Named("score", {"dot": list}).known("dot")
        'dot'
    """

    def __init__(self, what: str, builders: dict[str, B]) -> None:
        super().__init__(builders)
        self.what = what

    def register(self, name: str, build: B) -> None:
        """Add a part. Registering the same part again has no effect.

        Raises:
            UserError: another part already has this name.
        """
        known = self.setdefault(name, build)
        if known is not build:
            raise UserError(
                f"the {self.what} '{name}' of {build.__module__} is already registered by "
                f"{known.__module__}; give it another name"
            )

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
