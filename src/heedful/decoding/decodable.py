"""The contract between search and models: search sees a decodable, never an architecture.

Shapes: B sources, N rows of search, M selected rows, V vocabulary.
"""

from typing import Protocol, Self, TypeVar

from torch import Tensor

SourceT_contra = TypeVar("SourceT_contra", contravariant=True)


class State(Protocol):
    """What a decodable carries from one step to the next, for N rows."""

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]`` in that order; a row may be repeated or left out."""
        ...


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
