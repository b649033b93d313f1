"""Going on from a given beginning: a decodable that has already written some tokens.

Shapes: B sources, N rows of search, P tokens of the beginnings, V vocabulary.
"""

from dataclasses import dataclass
from typing import Generic, Self

import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN
from heedful.decoding.decodable import Decodable, SelectableT, SourceT_contra


@dataclass
class _Continued(Generic[SelectableT]):
    """The state of a search that goes on; ``last [N]`` until its first step is made."""

    inner: SelectableT
    last: Tensor | None

    def select(self, rows: Tensor) -> Self:
        last = None if self.last is None else self.last[rows]
        return type(self)(self.inner.select(rows), last)


class ForcedPrefix(Generic[SourceT_contra, SelectableT]):
    """A decodable whose outputs follow given beginnings; search finds what comes after them.

    Args:
        decodable: what writes tokens.
        beginnings: integers ``[B, P]``: what each source's output begins with; all are equally
            long. P may be 0.
        allowed: booleans ``[V]``: the tokens that may be the first to follow; all unless given.

    Attributes:
        log_probabilities: after the search has begun, those of the beginnings' tokens ``[B, P]``.
        allowed_log_probability: after its first step, the logarithm of what probability all allowed
            tokens had together ``[B]``: search sees the first token's share of that.
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

    def start(self, source: SourceT_contra) -> _Continued[SelectableT]:
        """The state after the beginnings, one row a source ``[B]``."""
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
        return _Continued(state, tokens)

    def step(
        self, tokens: Tensor, state: _Continued[SelectableT]
    ) -> tuple[Tensor, _Continued[SelectableT]]:
        """As any decodable's; the first step is given BEGIN, and reads the beginnings' last."""
        begun = state.last is None
        last = tokens if state.last is None else state.last
        logits, inner = self.decodable.step(last, state.inner)
        if not begun and self.allowed is not None:
            logits = logits.float().log_softmax(1).masked_fill(~self.allowed, -torch.inf)
            self.allowed_log_probability = logits.logsumexp(1)
        return logits, _Continued(inner, None)
