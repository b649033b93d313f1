"""Parts by the name that recipes give them; plug-ins add their own."""

import difflib
from collections.abc import Callable
from typing import Any, TypeVar

from heedful.basics.errors import UserError

B = TypeVar("B", bound=Callable[..., Any])


class Named(dict[str, B]):
    """Functions that make the parts of one kind, by name.

    Args:
        what: the kind, in messages.
        builders: those of heedful.

    Example:
        >>> Named("score", {"dot": list}).known("dot")
        'dot'
    """

    def __init__(self, what: str, builders: dict[str, B]) -> None:
        super().__init__(builders)
        self.what = what

    def register(self, name: str, build: B) -> None:
        """Add a part; the same part again is ignored.

        Raises:
            UserError: another part has the name.
        """
        known = self.setdefault(name, build)
        if known is not build:
            raise UserError(
                f"the {self.what} '{name}' of {build.__module__} is already registered by "
                f"{known.__module__}; give it another name"
            )

    def known(self, name: str) -> str:
        """The name, if there is such a part.

        Raises:
            ValueError: there is none; the message names the nearest.
        """
        if name in self:
            return name
        near = difflib.get_close_matches(name, self, n=1, cutoff=0.6)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(self)}"
        article = "an" if self.what[0] in "aeiou" else "a"
        raise ValueError(
            f"there is no such {self.what}; {hint} ({article} {self.what} of your own needs "
            "--plugin FILE.py)"
        )
