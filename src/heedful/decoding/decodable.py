"""The contract between search and models: search uses a decodable and knows no architecture.

Shapes: B sources, N rows of search, M selected rows, V vocabulary.
"""

from typing import Any, Protocol, Self, TypeGuard, TypeVar

from torch import Tensor

SourceT_contra = TypeVar("SourceT_contra", contravariant=True)


class State(Protocol):
    """The state of a decodable between steps, for N rows."""

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order; rows may be repeated or left out."""
        ...


class Joinable(Protocol):
    """A state to which new rows can be added during a search; each row counts its own steps."""

    @property
    def can_join(self) -> bool:
        """Whether it can currently be joined, and join another state."""
        ...

    def join(self, other: Any) -> Any:
        """The state of these rows, followed by the rows of ``other``, which start now.

        Requires that both can join. Neither may be used afterwards.
        """
        ...


def can_join(state: object) -> TypeGuard[Joinable]:
    """Whether a state can currently be joined, and join another state."""
    return bool(getattr(state, "can_join", False))


SelectableT = TypeVar("SelectableT", bound=State)


class Decodable(Protocol[SourceT_contra, SelectableT]):
    """Generates a sequence token by token: a translator, a language model, a captioner."""

    def start(self, source: SourceT_contra) -> SelectableT:
        """The state before the first step, one row per source ``[B]``."""
        ...

    def step(self, tokens: Tensor, state: SelectableT) -> tuple[Tensor, SelectableT]:
        """Logits ``[N, V]`` after the last ``tokens [N]``, and the new state.

        At the first step the tokens are BEGIN. The caller may overwrite the logits.
        """
        ...
