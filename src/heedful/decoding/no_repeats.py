"""Search constraint: no n-gram occurs twice in an output.

Paulus, Xiong and Socher 2018, "A Deep Reinforced Model for Abstractive Summarization", section 2.5
(with trigrams). Shapes: N rows of search, T tokens so far, W earlier n-grams, V vocabulary.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from heedful.decoding.decodable import Decodable

SourceT = TypeVar("SourceT")


@dataclass(frozen=True)
class _History:
    """The state of a search, and the tokens ``[N, T]`` of each row, BEGIN included."""

    inner: Any
    tokens: Tensor | None

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order."""
        tokens = None if self.tokens is None else self.tokens.index_select(0, rows)
        return replace(self, inner=self.inner.select(rows), tokens=tokens)


class NoRepeats(Generic[SourceT]):
    """A decodable whose outputs contain each n-gram at most once. END may always follow.

    Sources cannot join a running search, because each row has its own history.

    Args:
        decodable: generates tokens.
        size: n, at least 1.
    """

    def __init__(self, decodable: Decodable[SourceT, Any], size: int) -> None:
        if size < 1:
            raise ValueError(f"n-grams have at least one token, not {size}")
        self.decodable, self.size = decodable, size

    def start(self, source: SourceT) -> _History:
        """The state before the first step, one row a source ``[B]``."""
        return _History(self.decodable.start(source), None)

    def step(self, tokens: Tensor, state: _History) -> tuple[Tensor, _History]:
        """Logits ``[N, V]``, −∞ for tokens that would repeat an n-gram, and the new state."""
        logits, inner = self.decodable.step(tokens, state.inner)
        own = tokens.unsqueeze(1)
        history = own if state.tokens is None else torch.cat([state.tokens, own], 1)
        after = _History(inner, history)
        if history.shape[1] < self.size:
            return logits, after
        grams = history.unfold(1, self.size, 1)  # [N, W, n]
        last = history[:, history.shape[1] - self.size + 1 :].unsqueeze(1)
        rows, places = (grams[..., :-1] == last).all(-1).nonzero(as_tuple=True)
        logits = logits.clone()
        logits[rows, grams[rows, places, -1]] = -torch.inf
        return logits, after
