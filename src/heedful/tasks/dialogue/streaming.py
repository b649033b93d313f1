"""A decodable that reports the text of its only row while it grows.

Shapes: N rows of a search, here one; V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor

from heedful.data.vocabulary import Vocabulary
from heedful.decoding import Decodable
from heedful.models.pairs import Source

_HALF_A_CHARACTER = "\ufffd"


@dataclass
class StreamedState:
    """The state of the search and the tokens so far."""

    inner: Any
    tokens: list[int]
    begun: bool = False

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``: of the same row, or of none."""
        return replace(self, inner=self.inner.select(rows))


class Streamed:
    """Wraps a decodable for a search that keeps a single hypothesis.

    Args:
        inner: the decodable.
        vocabulary: decodes the tokens.
        stream: called with each further piece of the text, in whole characters.
    """

    def __init__(
        self, inner: Decodable[Source, Any], vocabulary: Vocabulary, stream: Callable[[str], None]
    ) -> None:
        self.inner, self.vocabulary, self.stream = inner, vocabulary, stream
        self.shown = ""

    def start(self, source: Source) -> StreamedState:
        """The state before the first step, for one source."""
        return StreamedState(self.inner.start(source), [])

    def step(self, tokens: Tensor, state: StreamedState) -> tuple[Tensor, StreamedState]:
        """Logits ``[1, V]`` after the last ``tokens [1]``, which are reported, and the state."""
        so_far = [*state.tokens, *tokens.tolist()] if state.begun else []
        if so_far:
            self.flush(self.vocabulary.decode(so_far).rstrip(_HALF_A_CHARACTER))
        logits, inner = self.inner.step(tokens, state.inner)
        return logits, StreamedState(inner, so_far, begun=True)

    def flush(self, text: str) -> None:
        """Report what follows the text that was reported before."""
        if len(text) > len(self.shown) and text.startswith(self.shown):
            piece, self.shown = text[len(self.shown) :], text
            self.stream(piece)
