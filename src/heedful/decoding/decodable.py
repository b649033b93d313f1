"""The contract between search and models: search sees a decodable, never an architecture.

Shapes: B sources, N rows of search, M selected rows, V vocabulary.
"""

from typing import Any, Protocol, Self, TypeGuard, TypeVar

from torch import Tensor

SourceT_contra = TypeVar("SourceT_contra", contravariant=True)


class State(Protocol):
    """What a decodable carries from one step to the next, for N rows."""

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]`` in that order; a row may be repeated or left out."""
        ...


class Joinable(Protocol):
    """A state that others may join while it is under way, each row at its own step."""

    @property
    def can_join(self) -> bool:
        """Whether it may be joined, and join, now."""
        ...

    def join(self, other: Any) -> Any:
        """The state of these rows, and then of those of ``other``, which begin now.

        Both can join; neither is used again.
        """
        ...


def can_join(state: object) -> TypeGuard[Joinable]:
    """Whether a state may be joined, and join, now."""
    return bool(getattr(state, "can_join", False))


SelectableT = TypeVar("SelectableT", bound=State)


class Decodable(Protocol[SourceT_contra, SelectableT]):
    """What writes a sequence token by token: a translator, a language model, a captioner."""

    def start(self, source: SourceT_contra) -> SelectableT:
        """The state before the first step, one row a source ``[B]``."""
        ...

    def step(self, tokens: Tensor, state: SelectableT) -> tuple[Tensor, SelectableT]:
        """Unnormalised log-probabilities ``[N, V]`` after the last ``tokens [N]``; the new state.

        The first tokens are BEGIN.
        """
        ...
