"""Forced prefixes: a decodable whose outputs begin with given tokens.

Shapes: B sources, N rows of search, P tokens of the prefixes, V vocabulary.
"""

from dataclasses import dataclass
from typing import Generic, Self

import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN
from heedful.decoding.decodable import Decodable, SelectableT, SourceT_contra


@dataclass
class _PrefixState(Generic[SelectableT]):
    """The state after a prefix; ``last [N]`` is its last token, until the first step."""

    inner: SelectableT
    last: Tensor | None

    def select(self, rows: Tensor) -> Self:
        last = None if self.last is None else self.last[rows]
        return type(self)(self.inner.select(rows), last)


class ForcedPrefix(Generic[SourceT_contra, SelectableT]):
    """A decodable whose outputs begin with given prefixes; search finds their continuations.

    Args:
        decodable: generates tokens.
        beginnings: integers ``[B, P]``: the prefix of each source's output; all have the same
            length. P may be 0.
        allowed: booleans ``[V]``: the tokens that may follow the prefix; all by default.

    Attributes:
        log_probabilities: log-probabilities ``[B, P]`` of the prefix tokens, set by :meth:`start`.
        allowed_log_probability: logarithm of the total probability of the allowed tokens ``[B]``,
            set by the first step, whose logits are relative to it.
    """

    def __init__(
        self,
        decodable: Decodable[SourceT_contra, SelectableT],
        beginnings: Tensor,
        allowed: Tensor | None = None,
    ) -> None:
        self.decodable, self.beginnings, self.allowed = decodable, beginnings, allowed
        self.log_probabilities = torch.zeros(beginnings.shape)
        self.allowed_log_probability = torch.zeros(len(beginnings))

    def start(self, source: SourceT_contra) -> _PrefixState[SelectableT]:
        """The state after the prefixes, one row per source ``[B]``."""
        state = self.decodable.start(source)
        tokens = self.beginnings.new_full((len(self.beginnings),), BEGIN)
        chosen = []
        for following in self.beginnings.unbind(1):
            logits, state = self.decodable.step(tokens, state)
            probabilities = logits.float().log_softmax(1)
            chosen.append(probabilities.gather(1, following.unsqueeze(1)))
            tokens = following
        if chosen:
            self.log_probabilities = torch.cat(chosen, dim=1)
        return _PrefixState(state, tokens)

    def step(
        self, tokens: Tensor, state: _PrefixState[SelectableT]
    ) -> tuple[Tensor, _PrefixState[SelectableT]]:
        """One step; the first step gets BEGIN and replaces it by the last token of the prefix."""
        begun = state.last is None
        last = tokens if state.last is None else state.last
        logits, inner = self.decodable.step(last, state.inner)
        if not begun and self.allowed is not None:
            logits = logits.float().log_softmax(1).masked_fill(~self.allowed, -torch.inf)
            self.allowed_log_probability = logits.logsumexp(1)
        return logits, _PrefixState(inner, None)
