"""The search loop; sources may enter and leave at any step.

Shapes: B sources, N rows of search, M remaining rows, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from heedful.basics.cancellation import check_cancelled
from heedful.decoding.decodable import Decodable, can_join
from heedful.decoding.hypothesis import Hypothesis

SourceT = TypeVar("SourceT")

Finished = tuple[int, list[Hypothesis]]
"""A source's number, and its hypotheses, best score first."""


class NewSources(NamedTuple, Generic[SourceT]):
    """Sources that enter a search together."""

    source: SourceT
    """The argument of a decodable's ``start``, for B sources."""
    max_lengths: Tensor
    """Integers ``[B]``, on the decodable's device: the longest output in tokens, END included."""
    keys: Sequence[int]
    """A unique number for each source: it identifies results, and random numbers of sampling are
    derived from it."""

    def checked(self) -> "NewSources[SourceT]":
        """Return itself after checks.

        Raises:
            ValueError: ``max_lengths`` or ``keys`` have the wrong length.
        """
        rows = len(self.max_lengths)
        if not rows or len(self.keys) != rows:
            raise ValueError(f"{rows} maximal lengths for {len(self.keys)} sources")
        if int(self.max_lengths.min()) < 1:
            raise ValueError("a maximal length includes END, so it must be at least 1")
        return self


Supply = Callable[[], NewSources[SourceT] | None]
"""Returns the next sources, or None if there are none now. It is called between two steps, after
all results have been yielded, so that the caller knows how many sources are active."""


class Method(Protocol):
    """Chooses tokens for the active sources, which are numbered as they were added."""

    tokens: Tensor
    """The last token of each row ``[N]``."""

    def add(self, max_lengths: Tensor) -> None:
        """Add sources; their rows come after those of the others."""
        ...

    def advance(self, logits: Tensor) -> tuple[Tensor | None, list[Finished]]:
        """The remaining rows ``[M]``, or None if nothing changed, and the results of this step."""
        ...

    def drop(self, numbers: list[int]) -> Tensor:
        """Remove sources; returns the remaining rows ``[M]``."""
        ...


def run(
    decodable: Decodable[SourceT, Any],
    method: Callable[[torch.device], Method],
    supply: Supply[SourceT],
    wanted: Callable[[int], bool] | None = None,
) -> Iterator[list[Finished]]:
    """Search until there are no more sources; see :func:`heedful.decoding.search_stream`.

    If the decodable's states can join, ``supply`` is called before each step, otherwise whenever no
    source is active. Its sources start together.

    Args:
        decodable: generates tokens.
        method: device → the method that chooses tokens.
        supply: returns the next sources.
        wanted: key → whether its source is still needed; if not, it is removed.
    """
    state: Any = None
    waiting: tuple[Any, NewSources[SourceT]] | None = None  # started, but cannot join yet
    choosing: Method | None = None
    keys: dict[int, int] = {}  # number of an active source → its key
    count = 0
    while True:
        check_cancelled()
        if waiting is None and (state is None or can_join(state)):
            given = supply()
            waiting = None if given is None else (decodable.start(given.source), given.checked())
        if waiting is not None and (state is None or (can_join(state) and can_join(waiting[0]))):
            begun, given = waiting
            waiting = None
            choosing = choosing or method(given.max_lengths.device)
            state = begun if state is None else state.join(begun)
            choosing.add(given.max_lengths)
            keys.update(enumerate(given.keys, start=count))
            count += len(given.keys)
        if state is None or choosing is None:
            return
        logits, state = decodable.step(choosing.tokens, state)
        selected, finished = choosing.advance(logits.float())
        state = _selected(state, choosing, selected)
        if finished:
            yield [(keys.pop(number), hypotheses) for number, hypotheses in finished]
        gone = [] if wanted is None else [n for n, key in keys.items() if not wanted(key)]
        if gone and state is not None:
            state = _selected(state, choosing, choosing.drop(gone))
            for number in gone:
                del keys[number]


def _selected(state: Any, choosing: Method, rows: Tensor | None) -> Any:
    """The state of the remaining rows; None if there are none."""
    if not len(choosing.tokens):
        return None
    return state if rows is None else state.select(rows)
